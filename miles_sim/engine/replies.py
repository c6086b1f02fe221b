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
    ids: list[int] = []
    for draw in words(random, want):
        if len(ids) >= want:
            break
        kind, pick = draw & 31, draw >> 5
        after_word = bool(ids) and ids[-1] >= FIRST_PIECE
        if not ids:
            ids.append(FIRST_PIECE + pick % _WORDS)
        elif kind < 2 and after_word:
            ids.append(_PUNCTUATION[pick % len(_PUNCTUATION)])
        elif kind == 2 and after_word and len(ids) + 4 <= count:
            ids.extend(_CHARACTERS[pick % len(_CHARACTERS)])
        else:
            ids.append(FIRST_SPACED_PIECE + pick % _WORDS)
    return ids


def seeded_logprobs(random: Random, count: int) -> list[float]:
    """`count` numbers below 0 with six decimals, drawn from three million: neighbours differ."""
    return [-(draw % 3_000_000 + 1) / 1_000_000 for draw in words(random, count)]
