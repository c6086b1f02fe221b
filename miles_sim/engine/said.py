"""What a reply's text says: thought, content, calls and why it ended; whole, or piece by piece."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from miles_sim.engine import reasoning
from miles_sim.engine.flight import Reason
from miles_sim.engine.formats import FORMATS, JSON_ARRAY, CallPiece, CallStream, ParsedCall, dialect
from miles_sim.engine.profiles import Profile
from miles_sim.engine.reasoning import Thought
from miles_sim.engine.request import ChatRequest, GenericMessage
from miles_sim.engine.tool_calls import parse


class Said(NamedTuple):
    """A whole reply."""

    text: str
    reason: Reason
    thought: str = ""
    calls: tuple[ParsedCall, ...] | None = None
    """None: the message has no calls; empty: a list without any."""


@dataclass(frozen=True)
class Saying:
    """Some of a reply."""

    thought: str = ""
    text: str = ""
    calls: tuple[CallPiece, ...] = ()


class Reader(NamedTuple):
    """Which parsers a request's replies go through."""

    profile: Profile
    tools: Sequence[dict[str, Any]] | None = None
    """None: no calls are looked for."""
    tool_parser: str = "qwen25"
    array: bool = False
    """Calls come as a JSON array, whatever the parser: `tool_choice` required or named, without a better grammar."""
    calls_before: int = 0
    """Tool calls in the request's messages."""
    reasoning_parser: str | None = None
    """None: no thoughts are."""
    template_options: dict[str, Any] | None = None
    whole_thoughts: bool = False

    @property
    def format(self) -> str:
        """In which calls are looked for."""
        return JSON_ARRAY if self.array else self.tool_parser

    @property
    def parses(self) -> bool:
        return self.tools is not None or self.reasoning_parser is not None

    def read(self, text: str, reason: Reason) -> Said:
        """The whole of a reply."""
        thought = ""
        if self.reasoning_parser is not None:
            found = reasoning.parse(text, self.reasoning_parser, dialect(self.profile.sglang), self.template_options)
            thought, text = found.reasoning, found.text
        if self.tools is None:
            return Said(text, reason, thought)
        release = dialect(self.profile.sglang)
        parsed = parse(text, reason, self.tools, self.profile.chat, parser=self.format, dialect=release)
        return Said(parsed.text, parsed.reason, thought, parsed.calls)

    def stream(self) -> "SayingStream":
        return SayingStream(self)


def reader_of(
    request: ChatRequest,
    profile: Profile,
    *,
    tool_parser: str | None = "qwen25",
    reasoning_parser: str | None = None,
    array: bool = False,
) -> Reader:
    """For the replies to this request, at a server started with these parsers. `array`: see `Reader`."""
    return Reader(
        profile=profile,
        tools=tuple(tool.model_dump() for tool in request.tools or ())
        if request.parses_tools and tool_parser
        else None,
        tool_parser=tool_parser or "qwen25",
        array=array,
        calls_before=sum(
            len(message.tool_calls or ()) for message in request.messages if isinstance(message, GenericMessage)
        ),
        reasoning_parser=reasoning_parser if request.separate_reasoning else None,
        template_options=dict(request.chat_template_kwargs or {}),
        whole_thoughts=not request.stream_reasoning,
    )


class SayingStream:
    """The parsers of one streamed reply, in the order in which SGLang asks them (serving_chat.py)."""

    def __init__(self, reader: Reader) -> None:
        release = dialect(reader.profile.sglang)
        self._whole = reader.whole_thoughts
        self._flushed = reader.profile.chat.stream.thoughts_flushed
        self._thoughts: reasoning.ReasoningStream | None = None
        if reader.reasoning_parser is not None:
            self._thoughts = reasoning.ReasoningStream(reader.reasoning_parser, release, reader.template_options)
        self._calls: CallStream | None = None
        if reader.tools is not None:
            self._calls = FORMATS[reader.format].stream(reader.tools, release)

    def push(self, text: str, *, last: bool = False) -> Saying:
        """What is let out after this much more text. `last`: it ended by itself, so some releases hold nothing back."""
        thought = ""
        if self._thoughts is not None:
            found = self._thoughts.push(text, whole=self._whole)
            held = self._thoughts.end() if last and self._flushed else Thought()
            thought, text = found.reasoning + held.reasoning, found.text + held.text
        if self._calls is None:
            return Saying(thought, text)
        delta = self._calls.push(text)
        return Saying(thought, delta.text, delta.calls)

    def rest(self) -> CallPiece | None:
        """At the end: arguments that were read and held back."""
        return None if self._calls is None else self._calls.rest()
