"""What a model thinks before it speaks, told apart as SGLang's reasoning parsers do (parser/reasoning_parser.py)."""

from dataclasses import dataclass

from miles_sim.engine.formats.dialect import Dialect

_OPEN, _CLOSE = "<think>", "</think>"


@dataclass(frozen=True)
class Thought:
    """A reply's text in two; either may be empty."""

    reasoning: str = ""
    text: str = ""


@dataclass(frozen=True)
class _Format:
    toggle: str | None
    """The template option that, set to false, says that nothing is thought; None: something always is."""
    call: str | None
    """What ends a thought that was left open."""
    open: str = _OPEN
    close: str = _CLOSE

    def thinks(self, template_options: dict[str, object]) -> bool:
        """The reply begins within a thought, tag or no tag."""
        return self.toggle is None or template_options.get(self.toggle) is not False


PARSERS = ("qwen3", "qwen3-thinking", "deepseek-r1", "glm45", "kimi_k2")
"""SGLang's names (`--reasoning-parser`)."""


def _format(parser: str, dialect: Dialect) -> _Format:
    if parser == "qwen3":
        return _Format("enable_thinking", "<tool_call>" if dialect.qwen_call_ends_thought else None)
    if parser == "qwen3-thinking":
        return _Format(None, "<tool_call>" if dialect.qwen_call_ends_thought else None)
    if parser == "glm45":
        return _Format("enable_thinking", "<tool_call>" if dialect.glm_call_ends_thought else None)
    if parser == "kimi_k2" and dialect.kimi_call_ends_thought:
        return _Format("thinking", "<|tool_calls_section_begin|>")
    return _Format(None, None)


def thinks(parser: str, dialect: Dialect, template_options: dict[str, object]) -> bool:
    """The reply to a request with these `chat_template_kwargs` begins within a thought."""
    return _format(parser, dialect).thinks(template_options)


def parse(text: str, parser: str, dialect: Dialect, template_options: dict[str, object] | None = None) -> Thought:
    """Thought and content of a whole reply. `template_options`: the request's `chat_template_kwargs`.

    Where the model is to think, a reply that never closes its thought is all thought, even without an opening tag.
    """
    format = _format(parser, dialect)
    if not format.thinks(template_options or {}) and format.open not in text:
        return Thought(text=text)
    if dialect.trims_reasoning:
        text = text.replace(format.open, "").strip()
    while text.startswith(format.open):
        text = text.removeprefix(format.open)
    thought, closed, said = text.partition(format.close)
    if closed:
        return Thought(thought, said.strip() if dialect.trims_reasoning else said)
    if format.call is not None and format.call in text:
        at = text.index(format.call)
        return Thought(text[:at].strip() if dialect.trims_reasoning else text[:at], text[at:])
    return Thought(text)


class ReasoningStream:
    """The parser of one streamed reply; each piece belongs to the thought, to the content, or both."""

    def __init__(self, parser: str, dialect: Dialect, template_options: dict[str, object] | None = None) -> None:
        self._format = _format(parser, dialect)
        self._dialect = dialect
        self._thinking = self._format.thinks(template_options or {})
        self._opened = False
        self._buffer = ""

    def push(self, text: str, *, whole: bool = False) -> Thought:
        """Takes what was sampled since the last step. `whole`: the thought is let out once it has ended
        (`stream_reasoning: false`)."""
        self._buffer += text
        format, now = self._format, self._buffer
        tags = (format.open, format.close, format.call or "")
        if any(tag.startswith(now) and tag != now for tag in tags):
            return Thought()
        if not self._opened and format.open in now:
            now = now.replace(format.open, "", -1 if self._dialect.drops_streamed_tags else 1)
            self._opened = self._thinking = True
            if self._dialect.forgets_opening_tag:
                self._buffer = now
        if not self._thinking:
            self._buffer = ""
            return Thought(text=now)
        return self._think(now, whole)

    def end(self) -> Thought:
        """What is held back when the reply is over."""
        held, self._buffer = self._buffer, ""
        if not self._thinking:
            return Thought(text=held)
        return Thought(held if self._opened else held.removeprefix(self._format.open))

    def _think(self, now: str, whole: bool) -> Thought:
        thought, closed, said = now.partition(self._format.close)
        if closed:
            self._thinking, self._buffer = False, ""
            return Thought(thought.rstrip() if self._dialect.trims_reasoning else thought, said)
        if self._format.call and self._format.call in now:
            at = now.index(self._format.call)
            self._thinking, self._buffer = False, ""
            return Thought(now[:at], now[at:])
        if whole:
            return Thought()
        held = self._held_back(now) if self._dialect.holds_back_tags else 0
        cut = len(now) - held
        self._buffer = now[cut:]
        return Thought(now[:cut])

    def _held_back(self, now: str) -> int:
        """Length of the longest end of `now` that a tag yet to come may begin with."""
        format = self._format
        tags = [format.close, *([format.call] if format.call else []), *([] if self._opened else [format.open])]
        return max(
            (n for tag in tags for n in range(1, min(len(now) + 1, len(tag))) if tag.startswith(now[-n:])), default=0
        )
