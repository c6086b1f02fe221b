"""JSON of sampled ids with their logprobs, joined from pieces that are made once for each id of the vocabulary.

An answer has some hundred ids, each twice: as Python objects they would cost more than all the rest of the answer.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import orjson

from miles_sim.engine.logprobs import Logprobs
from miles_sim.engine.packed import picked

_NONE = b"[]"
_LAST = b',"top_logprobs":[]}'


class Fragments:
    """`texts` and `spelled`: text and bytes of each id, as an answer tells them."""

    def __init__(self, texts: Sequence[str], spelled: Sequence[Sequence[int]]) -> None:
        quoted = [orjson.dumps(text) for text in texts]
        self._with_text = [b",%d,%s],[" % (token, text) for token, text in enumerate(quoted)]
        self._without_text = [b",%d,null],[" % token for token in range(len(quoted))]
        self._entry = [
            b'%s,{"token":%s,"bytes":%s,"logprob":' % (_LAST, text, orjson.dumps(shown))
            for text, shown in zip(quoted, spelled, strict=True)
        ]

    def both(self, ids: Sequence[int], logprobs: Sequence[bytes]) -> tuple[bytes, bytes]:
        """`content`, and `triples` with texts."""
        if len(ids) < 2:
            return self.content(ids, logprobs), self.triples(ids, logprobs, texts=True)
        of_each = itemgetter(*ids)
        content = _by_turns(of_each(self._entry), logprobs)
        return _content(content), _triples(_by_turns(logprobs, of_each(self._with_text)))

    def triples(self, ids: Sequence[int], logprobs: Sequence[bytes], *, texts: bool) -> bytes:
        """`[[logprob, id, text or null], …]`, as in `output_token_logprobs`. `logprobs`: as `numbers` spells them."""
        if not ids:
            return _NONE
        ends = self._with_text if texts else self._without_text
        return _triples(_by_turns(logprobs, picked(ends, ids)))

    def content(self, ids: Sequence[int], logprobs: Sequence[bytes]) -> bytes:
        """`[{token, bytes, logprob, top_logprobs: []}, …]`, as in `logprobs.content` of a chat choice. `logprobs`:
        as `numbers` spells them."""
        if not ids:
            return _NONE
        return _content(_by_turns(picked(self._entry, ids), logprobs))


def numbers(values: Sequence[float]) -> list[bytes]:
    """The JSON of each of one or more."""
    if isinstance(values, Logprobs):
        return values.spelled
    return orjson.dumps(values)[1:-1].split(b",")


def _triples(pieces: list[bytes]) -> bytes:
    pieces[0], pieces[-1] = b"[[" + pieces[0], pieces[-1][:-2] + b"]"
    return b"".join(pieces)


def _content(pieces: list[bytes]) -> bytes:
    pieces[0], pieces[-1] = b"[" + pieces[0][len(_LAST) + 1 :], pieces[-1] + _LAST + b"]"
    return b"".join(pieces)


def _by_turns(first: Sequence[bytes], second: Sequence[bytes]) -> list[bytes]:
    """Of each one."""
    if len(first) != len(second):
        raise ValueError(f"ids and logprobs: {len(first)} and {len(second)}, as many of both are due")
    pieces = [b""] * (2 * len(first))
    pieces[::2], pieces[1::2] = first, second
    return pieces


def entries(told: Any) -> list[Any]:
    """The objects again, for what is told of them in another shape."""
    found: list[Any] = orjson.loads(orjson.dumps(told))
    return found
