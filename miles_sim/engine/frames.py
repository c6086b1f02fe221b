"""Chat requests one after another: what stands beside messages and ids is mostly the same, and is read once; the
samples of a group begin with the very same request, and it too is read once."""

from array import array
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import orjson
from pydantic import TypeAdapter, ValidationError

from miles_sim.engine.arrived import arrived
from miles_sim.engine.chat import want_of
from miles_sim.engine.profiles import Profile
from miles_sim.engine.prompt import Prompt
from miles_sim.engine.request import ChatMessage, ChatRequest, parse_document
from miles_sim.engine.sampling import Sampling, sampling_of
from miles_sim.engine.template import Templates
from miles_sim.engine.wire import Want

MOST = 256
"""Frames that are kept."""
LATEST, LONGEST = 32, 1 << 20
"""Plain requests that are kept whole, and bytes of the longest of them."""
_ROLES = ("user", "assistant", "system", "tool", "function", "developer")
_MESSAGES: TypeAdapter[list[ChatMessage]] = TypeAdapter(list[ChatMessage])


@dataclass
class Frame:
    """All of a chat request but its messages and ids, and what follows from that."""

    request: ChatRequest
    profile: Profile
    templates: Templates | None = None
    """Of the answers, where the request asks for one reply and nothing beside it; made with the first answer."""

    @cached_property
    def sampling(self) -> Sampling:
        return sampling_of(self.request, self.profile)

    @cached_property
    def want(self) -> Want:
        return want_of(self.request)

    @cached_property
    def adapter(self) -> str | None:
        return self.request.adapter

    @cached_property
    def cache_key(self) -> str | None:
        return self.request.cache_key

    def arrived(self, request: ChatRequest) -> tuple[str, ...]:
        """What the request came with; headers may have set more than the body did."""
        same = request.model_fields_set == self.request.model_fields_set
        return self.fields if same else arrived(request)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        return arrived(self.request)


class Plain(NamedTuple):
    """A request of a known frame, with nothing about it that somebody has to look at closer."""

    frame: Frame
    templates: Templates
    prompt: Prompt


class Frames:
    """Reads chat requests as `request.parse` does."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._fields: Collection[str] = profile.chat.known
        self._takes_ids = "input_ids" in self._fields
        self._frames: dict[bytes, Frame] = {}
        self._latest: dict[bytes, Plain] = {}

    def latest(self, body: bytes) -> Plain | None:
        """What came as this very body lately, and was taken."""
        return self._latest.get(body)

    def keep(self, body: bytes, plain: Plain) -> None:
        """It was taken; the one that has been kept longest may have to go."""
        if len(body) <= LONGEST:
            if len(self._latest) >= LATEST:
                del self._latest[next(iter(self._latest))]
            self._latest[body] = plain

    def find(self, document: Any) -> tuple[Any, bytes | None, Frame | None]:
        """The document, the key of its frame, and the frame where it is known."""
        key = self._key(document)
        return document, key, None if key is None else self._frames.get(key)

    def read(self, document: Any, key: bytes | None, known: Frame | None) -> tuple[ChatRequest, Frame]:
        """The request and its frame, from what `find` gave; errors are those of `request.parse`."""
        if known is not None and (request := _filled(known.request, document)) is not None:
            return request, known
        request = parse_document(document, self._fields)
        frame = Frame(request, self._profile)
        if key is not None and request.input_ids is not None:
            if len(self._frames) >= MOST:
                self._frames.clear()
            empty = request.model_copy(update={"messages": [], "input_ids": []})
            frame = self._frames[key] = Frame(empty, self._profile)
        return request, frame

    def _key(self, document: Any) -> bytes | None:
        """Equal for documents that differ in messages and ids alone; None for one that lacks either."""
        if not self._takes_ids or not isinstance(document, dict):
            return None
        rest = document.copy()
        try:
            del rest["messages"], rest["input_ids"]
            key = orjson.dumps(rest)
        except (KeyError, TypeError):
            return None
        return key if b"null" not in key else None  # NaN, which Python's parser takes, looks like it


def plain_prompt(document: dict[str, Any]) -> Prompt | None:
    """What the model reads, where each message has but a role and a text; None where somebody has to look closer."""
    messages = document["messages"]
    if type(messages) is not list or not messages:
        return None
    for message in messages:
        if type(message) is not dict or len(message) != 2 or type(message.get("content")) is not str:
            return None
        if message.get("role") not in _ROLES:
            return None
    try:
        return Prompt(array("I", document["input_ids"]), messages[-1]["content"])
    except (TypeError, OverflowError):
        return None


def _filled(frame: ChatRequest, document: dict[str, Any]) -> ChatRequest | None:
    """None where messages or ids are not as they should be, or ids need coercion."""
    try:
        ids = array("I", document["input_ids"])
        messages = _MESSAGES.validate_python(document["messages"])
    except (ValidationError, TypeError, OverflowError):
        return None
    return frame.model_copy(update={"messages": messages, "input_ids": ids})
