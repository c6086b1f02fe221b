"""What the model says: the first rule that matches, drafted as ids before any bound cuts it."""

import json
from collections.abc import Sequence
from random import Random

from miles_sim.engine.seeding import words
from miles_sim.reply import Reply, ReplyRule, ToolCall
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


def draft(reply: Reply, tokenizer: ByteTokenizer, random: Random, *, limit: int) -> list[int]:
    """All ids of the reply, its stop token last; seeded text is not drawn much beyond `limit`."""
    said = reply.text
    ids = seeded_text(random, reply.tokens, limit=limit) if said is None else tokenizer.encode(said)
    if not reply.tool_calls:
        return [*ids, tokenizer.text_stop_id]
    return [*ids, *tokenizer.encode(spell_calls(reply.tool_calls, after_text=bool(ids))), tokenizer.call_stop_id]


def spell_calls(calls: Sequence[ToolCall], *, after_text: bool) -> str:
    """Tool calls as the families' templates write them, so that a rendered reply is the sampled one."""
    blocks = [
        f'<tool_call>\n{{"name": {_json(call.name)}, "arguments": {_json(call.arguments)}}}\n</tool_call>'
        for call in calls
    ]
    return ("\n" if after_text else "") + "\n".join(blocks)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


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
