"""Chat answers that differ in a few values alone, made by putting these into the JSON around them.

A template is the answer of the general way with marked values in place of real ones, split at the marks; one that
does not give the very bytes of the general way is not taken.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter

import orjson

from miles_sim.engine.chat import Pieces, chat_completion, pieces_of
from miles_sim.engine.clock import Timing
from miles_sim.engine.flight import Answered
from miles_sim.engine.request import ChatRequest
from miles_sim.engine.said import Reader
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.wire import Want, Wire

MOST = 16
"""Templates that are kept of one frame."""
Key = tuple[object, ...]


class _Marked(Sequence[int]):
    """Ids, of which only number and last one are looked at."""

    def __init__(self, count: int, last: int) -> None:
        self._count, self._last = count, last

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int | slice) -> int:  # type: ignore[override]
        return self._last

    @property
    def size(self) -> int:
        return self._count

    @property
    def given(self) -> "_Marked":
        return self


_PROMPT, _COMPLETION, _CACHED = 700_000_001, 600_000_002, 500_000_004
_TIMING = Timing(0, 0, 123_456_789)
_TEXTS = Pieces("mark text", b'"mark content"', b'"mark triples"')
_ID, _VERSION = "mark id", "mark version"


def _values(answered: Answered, pieces: Pieces) -> tuple[bytes, ...]:
    """JSON of each value in which answers differ."""
    asked = answered.asked
    prompt, completion = asked.prompt.size, len(answered.output_ids)
    return (
        orjson.dumps(asked.id),
        orjson.dumps(pieces.text),
        pieces.content if isinstance(pieces.content, bytes) else b"",
        pieces.triples or b"",
        _quoted(answered.weight_version),
        b"%d" % prompt,
        b"%d" % completion,
        b"%d" % (prompt + completion),
        b"%d" % answered.cached_tokens,
        *_times(answered.timing.finished),
    )


@lru_cache(maxsize=64)
def _quoted(version: str) -> bytes:
    return orjson.dumps(version)


@lru_cache(maxsize=1024)
def _times(finished: int) -> tuple[bytes, bytes, bytes]:
    """JSON of all times that hang on the last one; without a clock there are few different ones."""
    timing = Timing(0, 0, finished)
    return orjson.dumps(timing.latency), orjson.dumps(timing.sent_at), b"%d" % timing.created


class Template:
    """The JSON of one kind of answer, split where answers differ."""

    def __init__(self, marked: bytes, marks: tuple[bytes, ...]) -> None:
        """`marked`: an answer in which `marks` stand."""
        longest = sorted(filter(None, marks), key=len, reverse=True)
        self._parts: list[bytes] = re.split(b"(%s)" % b"|".join(map(re.escape, longest)), marked)
        self._values = itemgetter(*map(marks.index, self._parts[1::2]))

    def filled(self, values: tuple[bytes, ...]) -> bytes:
        parts = self._parts.copy()
        parts[1::2] = self._values(values)
        return b"".join(parts)


def asks_little(request: ChatRequest, sampling: Sampling, want: Want, reader: Reader) -> bool:
    """For one reply, as text, perhaps with logprobs and `meta_info`, and for nothing beside it."""
    more = (
        request.n != 1,
        request.stream,
        request.rid is not None,
        request.return_token_ids,
        request.return_cached_tokens_details,
        request.return_spec_tokens_details,
        request.return_input_ids_in_sglext,
        request.return_output_ids_in_sglext,
        sampling.steering is not None,
        reader.parses,
    )
    return not any(more) and want == Want(logprobs=want.logprobs, texts=True)


class Templates:
    """Answers to requests that differ in messages and ids alone, and ask for one reply and nothing beside it."""

    def __init__(self, wire: Wire, request: ChatRequest, sampling: Sampling, want: Want, reader: Reader) -> None:
        self._wire, self._request, self._sampling, self._want, self._reader = wire, request, sampling, want, reader
        self._last = want.logprobs and wire.profile.generate.default_input_logprobs == "last"
        self._known: dict[Key, Template | None] = {}

    def answer(self, answered: Answered) -> bytes:
        """As the general way gives it."""
        pieces = pieces_of(self._wire, self._request, self._sampling, answered, triples=self._request.return_meta_info)
        key = self._key(answered, pieces)
        template = self._known.get(key)
        if template is not None:
            return template.filled(_values(answered, pieces))
        whole = self._whole(answered, pieces)
        if key not in self._known and _fits(answered) and len(self._known) < MOST:
            self._known[key] = self._made(answered, pieces, whole)
        return whole

    def _key(self, answered: Answered, pieces: Pieces) -> Key:
        """Equal for answers in which the same keys have values of the same kind."""
        reason = answered.finish_reason
        return (
            reason["type"],
            reason.get("matched", reason.get("length")),
            answered.cached_tokens > 0,
            not pieces.text,
            answered.asked.prompt.given[-1] if self._last else None,
            answered.weight_versions,
            answered.retractions,
        )

    def _whole(self, answered: Answered, pieces: Pieces) -> bytes:
        return orjson.dumps(
            chat_completion(self._wire, self._request, self._sampling, self._want, [answered], self._reader, [pieces])
        )

    def _made(self, answered: Answered, pieces: Pieces, whole: bytes) -> Template | None:
        """None where the template does not give what the general way gave."""
        marked = _marked(answered)
        marks = Pieces(
            _TEXTS.text if pieces.text else "",
            None if pieces.content is None else _TEXTS.content,
            None if pieces.triples is None else _TEXTS.triples,
        )
        template = Template(self._whole(marked, marks), _values(marked, marks))
        return template if template.filled(_values(answered, pieces)) == whole else None


def _fits(answered: Answered) -> bool:
    """It differs from others of its key by no more than a template has marks for."""
    ended = answered.finish_reason["type"] in ("stop", "length")
    return ended and not answered.weight_versions and not answered.retractions and answered.spec is None


def _marked(answered: Answered) -> Answered:
    prompt = _Marked(_PROMPT, answered.asked.prompt.given[-1])
    return answered._replace(
        asked=answered.asked._replace(id=_ID, prompt=prompt),  # type: ignore[arg-type]
        output_ids=_Marked(_COMPLETION, 0),  # type: ignore[arg-type]
        cached_tokens=_CACHED if answered.cached_tokens else 0,
        weight_version=_VERSION,
        timing=_TIMING,
    )
