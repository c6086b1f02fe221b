"""What the model says: the first rule that matches, drafted as ids before any bound cuts it."""

from collections.abc import Sequence
from random import Random

from miles_sim.engine.formats import FORMATS
from miles_sim.engine.misbehaviour import Parts, misbehaved
from miles_sim.engine.seeding import words
from miles_sim.reply import Reply, ReplyRule
from miles_sim.tokenizer import FIRST_PIECE, FIRST_SPACED_PIECE, ByteTokenizer

_WORDS = FIRST_SPACED_PIECE - FIRST_PIECE
_PUNCTUATION = b",;:."
_CHARACTERS = tuple(character.encode() for character in "éß→✓字🙂")


def reply_for(last_text: str, attempt: int, rules: Sequence[ReplyRule], default: Reply) -> Reply:
    """The reply of the first rule that fits, else the default.

    `last_text`: of the last message (chat); `attempt`: how often the same thing was asked before.
    """
    for rule in rules:
        if rule.attempt in (None, attempt) and rule.contains in last_text:
            return rule.reply
    return default


def draft(
    reply: Reply, tokenizer: ByteTokenizer, random: Random, *, limit: int, prompt_ids: Sequence[int] = ()
) -> list[int]:
    """All ids of the reply, its stop token last; seeded text is not drawn much beyond `limit`.

    `prompt_ids` say whether a thought is closed or open already, and how many calls there were before.
    """
    family = tokenizer.family
    thought = _text(reply.reasoning, tokenizer, random, limit)
    content = _text(reply.tokens if reply.text is None else reply.text, tokenizer, random, limit)
    parts = Parts(thought=thought, content=content, calls=reply.tool_calls)
    if reply.misbehave is not None:
        parts = misbehaved(parts, reply.misbehave, tokenizer)
    spelled = ""
    if parts.calls:
        before = _calls_before(prompt_ids, tokenizer)
        spelled = FORMATS[family.tool_format].spell(parts.calls, after_text=bool(parts.content), calls_before=before)
        spelled = parts.broken(spelled)
    stop = tokenizer.call_stop_id if parts.calls else tokenizer.text_stop_id
    return [
        *_thought(parts, tokenizer, prompt_ids, empty=not reply.reasoning),
        *parts.content,
        *tokenizer.encode(spelled),
        *parts.tail,
        stop,
    ]


def _text(said: int | str, tokenizer: ByteTokenizer, random: Random, limit: int) -> list[int]:
    return tokenizer.encode(said) if isinstance(said, str) else seeded_text(random, said, limit=limit)


def _thought(parts: Parts, tokenizer: ByteTokenizer, prompt_ids: Sequence[int], *, empty: bool) -> list[int]:
    """The thought in its tags, less those that the prompt ends with; nothing after a thought that the prompt closed."""
    family = tokenizer.family
    if parts.silent or (empty and not parts.unclosed and family.reasoning_format is None):
        return []
    opening, closing = (tokenizer.encode(tag) for tag in family.think)
    if _ends_with(prompt_ids, [*opening, *closing]):
        return []
    begun = _ends_with(prompt_ids, opening)
    return [*([] if begun else opening), *parts.thought, *([] if parts.unclosed else closing)]


def _ends_with(ids: Sequence[int], end: Sequence[int]) -> bool:
    return len(ids) >= len(end) and list(ids[len(ids) - len(end) :]) == list(end)


def _calls_before(prompt_ids: Sequence[int], tokenizer: ByteTokenizer) -> int:
    """Calls that stand in the prompt, where the format numbers them on."""
    mark = tokenizer.mark_ids.get("<|tool_call_begin|>")
    return 0 if mark is None else prompt_ids.count(mark)


def seeded_text(random: Random, count: int, *, limit: int | None = None) -> list[int]:
    """`count` ids of words, a bare piece first, with some punctuation and a rare character of several bytes.

    It neither begins nor ends with white space. With `limit` it stops there (or within a character just after),
    and what it has by then is the beginning of the whole.
    """
    want = count if limit is None else min(count, limit)
    if want <= 0:
        return []
    draws = words(random, want)
    spaced: list[int] = (FIRST_SPACED_PIECE + (draws >> 5) % _WORDS).tolist()
    ids = [spaced[0] - FIRST_SPACED_PIECE + FIRST_PIECE]
    done = 1
    rare = (draws[1:] & 31 < 3).nonzero()[0] + 1
    for place, draw in zip(rare.tolist(), draws[rare].tolist(), strict=True):
        if len(ids) >= want:
            return ids
        ids += spaced[done:place]
        done = place
        if len(ids) >= want:
            return ids[:want]
        if ids[-1] >= FIRST_PIECE and (other := _other(draw, room=count - len(ids))):
            ids += other
            done += 1
    return ids + spaced[done : done + max(want - len(ids), 0)]


def _other(draw: int, *, room: int) -> Sequence[int]:
    """Ids of a punctuation mark or a character of several bytes; none where the character does not fit."""
    kind, pick = draw & 31, draw >> 5
    if kind < 2:
        return (_PUNCTUATION[pick % len(_PUNCTUATION)],)
    return _CHARACTERS[pick % len(_CHARACTERS)] if room >= 4 else b""


def seeded_logprobs(random: Random, count: int) -> list[float]:
    """`count` numbers below 0 with six decimals, drawn from three million: neighbours differ."""
    return ((words(random, count) % 3_000_000 + 1) / -1_000_000).tolist()  # type: ignore[no-any-return]
