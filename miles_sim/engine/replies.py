"""What the model says: the first rule that matches, drafted as ids before any bound cuts it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice

from miles_sim.engine.formats import FORMATS
from miles_sim.engine.misbehaviour import Parts, misbehaved
from miles_sim.engine.packed import picked
from miles_sim.engine.seeding import Chances
from miles_sim.engine.steering import Steering
from miles_sim.reply import Reply, ReplyRule
from miles_sim.tokenizer import FIRST_PIECE, FIRST_SPACED_PIECE, FIRST_SPECIAL, ByteTokenizer

ECHOED = 48
"""Ids of the prompt that a reply repeats."""
_MARKS, _TABLES = 16, 8
"""Of 256 draws so many are punctuation; the others are words, in each table others than in the one before."""
_EVERY = 64
"""Among so many ids stands one character of several bytes."""


def _tables() -> list[list[int]]:
    """The id of each draw."""
    words, marks = cycle(range(FIRST_SPACED_PIECE, FIRST_SPECIAL)), cycle(b",;:.")
    return [[*islice(marks, _MARKS), *islice(words, 256 - _MARKS)] for _ in range(_TABLES)]


_SAID = _tables()
_WIDE = [
    (draw // 5, draw // 5 + len(character), character)
    for draw, character in zip(range(256), cycle(map(str.encode, "éß→✓字🙂")))
]
"""For each draw where in its block a character begins and ends, and its bytes."""


def reply_for(
    last_text: str, attempt: int, rules: Sequence[ReplyRule], default: Reply, *, seed: int | None = None
) -> Reply:
    """The reply of the first rule that fits, else the default.

    `last_text`: of the last message (chat); `attempt`: how often the same thing was asked before; `seed`: the
    request's sampling seed.
    """
    for rule in rules:
        if rule.attempt in (None, attempt) and rule.seed in (None, seed) and rule.contains in last_text:
            return rule.reply
    return default


def draft(
    reply: Reply,
    tokenizer: ByteTokenizer,
    random: Chances,
    *,
    limit: int,
    prompt_ids: Sequence[int] = (),
    silent: bool = False,
    tight: bool = False,
) -> list[int]:
    """All ids of the reply, its stop token last; seeded text is not drawn much beyond `limit`.

    `prompt_ids` say whether a thought is closed or open already, and how many calls there were before. `silent`: not
    even an empty thought stands before. `tight`: no white space behind it.
    """
    family = tokenizer.family
    plain = reply.reasoning in (0, "") and reply.misbehave is None and not reply.tool_calls
    if plain and family.reasoning_format is None:
        ids = _text(reply.tokens if reply.text is None else reply.text, tokenizer, random, limit)
        ids.append(tokenizer.text_stop_id)
        return ids
    thought = _text(reply.reasoning, tokenizer, random, limit)
    content = _text(reply.tokens if reply.text is None else reply.text, tokenizer, random, limit)
    parts = Parts(thought=thought, content=content, calls=reply.tool_calls, silent=silent, tight=tight)
    if reply.misbehave == "echo":
        parts = replace(parts, content=_echoed(prompt_ids, tokenizer))
    elif reply.misbehave is not None:
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
        *(tokenizer.encode(spelled) if spelled else ()),
        *parts.tail,
        stop,
    ]


def _echoed(prompt_ids: Sequence[int], tokenizer: ByteTokenizer) -> list[int]:
    special = set(tokenizer.special_ids.values()) | tokenizer.stop_ids | {tokenizer.eos_id}
    return [id for id in prompt_ids if id not in special][-ECHOED:]


def _text(said: int | str, tokenizer: ByteTokenizer, random: Chances, limit: int) -> list[int]:
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
    if parts.tight:
        closing = tokenizer.encode(family.think[1].rstrip())
    return [*([] if begun else opening), *parts.thought, *([] if parts.unclosed else closing)]


def _ends_with(ids: Sequence[int], end: Sequence[int]) -> bool:
    return len(ids) >= len(end) and list(ids[len(ids) - len(end) :]) == list(end)


def _calls_before(prompt_ids: Sequence[int], tokenizer: ByteTokenizer) -> int:
    """Calls that stand in the prompt, where the format numbers them on."""
    mark = tokenizer.mark_ids.get("<|tool_call_begin|>")
    return 0 if mark is None else list(prompt_ids).count(mark)


def seeded_text(random: Chances, count: int, *, limit: int | None = None) -> list[int]:
    """`count` ids of words, a bare piece first, with some punctuation and a rare character of several bytes.

    It neither begins nor ends with white space. With `limit` it stops there, within a character perhaps, and what it
    has by then is the beginning of the whole.
    """
    want = count if limit is None else min(count, limit)
    if want <= 0:
        return []
    draws = random.randbytes(want)
    first = draws[0]
    ids = [*picked(_SAID[first % _TABLES], draws)]
    ids[0] = FIRST_PIECE + first
    for block in range(1, want, _EVERY):
        begin, end, character = _WIDE[draws[block]]
        if block + end <= count:
            ids[block + begin : block + end] = character
    del ids[want:]
    return ids


def lengthened(
    ids: list[int], steering: Steering, stop_ids: frozenset[int], random: Chances, *, limit: int
) -> list[int]:
    """The draft with more text before a stop token that would come too soon, and after one that ends nothing. A
    grammar says itself where it ends."""
    if steering.constraint is not None:
        return ids
    least = min(steering.min_new_tokens, limit)
    if least:
        at = next((n for n, token in enumerate(ids) if token in stop_ids), len(ids))
        ids = [*ids[:at], *_more_text(random, least - at), *ids[at:]]
    if steering.ignore_eos:
        ids = [*ids, *_more_text(random, limit - len(ids))]
    return ids


def _more_text(random: Chances, count: int) -> list[int]:
    """`count` ids of text that goes on after other text."""
    ids = seeded_text(random, count)
    if ids:
        ids[0] += FIRST_SPACED_PIECE - FIRST_PIECE
    return ids
