"""JSON of sampled ids with their logprobs, joined from pieces that are made once for each id of the vocabulary.

An answer has some hundred ids, each twice: as Python objects they would cost more than all the rest of the answer.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import orjson

_NONE = orjson.Fragment(b"[]")
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

    def triples(self, ids: Sequence[int], logprobs: Sequence[float], *, texts: bool) -> orjson.Fragment:
        """`[[logprob, id, text or null], …]`, as in `output_token_logprobs`."""
        if not ids:
            return _NONE
        ends = self._with_text if texts else self._without_text
        told = _joined(_numbers(logprobs), [ends[token] for token in ids])
        return orjson.Fragment(b"[[%s]" % told[:-2])

    def content(self, ids: Sequence[int], logprobs: Sequence[float]) -> orjson.Fragment:
        """`[{token, bytes, logprob, top_logprobs: []}, …]`, as in `logprobs.content` of a chat choice."""
        if not ids:
            return _NONE
        told = _joined([self._entry[token] for token in ids], _numbers(logprobs))
        return orjson.Fragment(b"[%s%s]" % (told[len(_LAST) + 1 :], _LAST))


def _numbers(values: Sequence[float]) -> list[bytes]:
    return orjson.dumps(list(values))[1:-1].split(b",")


def _joined(first: list[bytes], second: list[bytes]) -> bytes:
    return b"".join(chain.from_iterable(zip(first, second, strict=True)))


def entries(told: Any) -> list[Any]:
    """The objects again, for what is told of them in another shape."""
    found: list[Any] = orjson.loads(orjson.dumps(told))
    return found
