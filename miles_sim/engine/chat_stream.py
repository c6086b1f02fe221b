"""A `/v1/chat/completions` answer as a stream: the pieces that each release makes of a request's steps."""

from collections.abc import Iterator, Sequence
from typing import Any

from miles_sim.engine.chat import call_id, logprob_content, sglext
from miles_sim.engine.clock import EPOCH
from miles_sim.engine.detokenizer import TextStream
from miles_sim.engine.flight import Flight, Reason, Step
from miles_sim.engine.formats import CallPiece
from miles_sim.engine.request import ChatRequest
from miles_sim.engine.said import Reader, Saying
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.sse import DONE, StreamCutError, abort_event, event
from miles_sim.engine.usage import Counts, summed, usage
from miles_sim.engine.wire import Triple, Want, Wire, thought_tokens, top_rows


class _Choice:
    """One of the `n` replies, as far as it was told."""

    def __init__(self, flight: Flight, text: TextStream, reader: Reader) -> None:
        self.flight = flight
        self.text = text
        self.said = reader.stream() if reader.parses else None
        self.opened = False
        self.called = False
        self.counts = Counts()
        self.thought = 0
        """Ids of it."""
        self.thought_over = False
        self.rows: list[list[Triple]] | None = None

    def saying(self, step: Step) -> Saying:
        """What this step lets out."""
        reason = step.finish_reason
        told = self.text.push(step.delta_ids) if reason is None else self.text.end(step.ids, reason)
        if self.said is None:
            return Saying(text=told)
        return self.said.push(told, last=reason is not None and reason["type"] != "abort")


class ChatStream:
    """Feed it each step of each choice, then `end`. Raises `StreamCutError` where the release's own stream breaks."""

    def __init__(
        self,
        wire: Wire,
        request: ChatRequest,
        sampling: Sampling,
        want: Want,
        reader: Reader,
        flights: Sequence[Flight],
        *,
        framed: bool = False,
    ) -> None:
        """`framed`: ids in `sglext` come as an event of their own name."""
        self.stopped = False
        """An error has ended it: feed it no more."""
        self._wire = wire
        self._shape = wire.profile.chat.stream
        self._request = request
        self._want = want
        self._reader = reader
        self._framed = framed
        self._id = ""
        self._ended: dict[int, Reason] = {}
        """Why the choices that are done ended, in the order in which they did."""
        self._choices = [
            _Choice(
                flight,
                TextStream(wire.tokenizer, wire.trim(sampling)),
                reader,
            )
            for flight in flights
        ]

    def feed(self, index: int, step: Step) -> Iterator[bytes]:
        """The pieces of one step."""
        choice = self._choices[index]
        flight, reason = choice.flight, step.finish_reason
        self._id = flight.id
        choice.counts = self._counted(choice, step)
        if reason is not None and reason["type"] == "abort":
            queued = step.answered is not None and step.answered.from_queue and "status_code" not in reason
            if queued:
                choice.counts = Counts(completion=step.end)
            refusal = self._refusal(reason, queued=queued)
            if refusal is not None:
                self.stopped = True
                yield refusal
                return
        if reason is not None:
            self._ended[index] = reason
        if not choice.opened:
            choice.opened = True
            yield self._piece(index, {"role": "assistant", "content": ""})
        yield from self._told(index, choice, step)

    def _counted(self, choice: _Choice, step: Step) -> Counts:
        flight, end = choice.flight, self._want.think_end
        if end is not None and not choice.thought_over:
            choice.thought += thought_tokens(step.delta_ids, self._want)
            choice.thought_over = end in step.delta_ids
        return Counts(flight.asked.prompt.size, step.end, flight.cached_tokens, choice.thought)

    def _refusal(self, reason: Reason, *, queued: bool) -> bytes | None:
        """The error that an abort is told as; None: it is told as an ordinary end."""
        if queued:
            if self._shape.aborted_in_queue == "nothing":
                raise StreamCutError(
                    f"{self._wire.profile.release} has no answer for a waiting request that is aborted"
                )
            return abort_event(reason) if self._shape.aborted_in_queue == "error" else None
        if reason.get("status_code") is not None:
            return abort_event(reason) if self._shape.aborted_with_status == "error" else None
        if self._shape.aborted == "cut":
            raise StreamCutError(
                f"{self._wire.profile.release} breaks off the stream of a running request that is aborted"
            )
        return None

    def _told(self, index: int, choice: _Choice, step: Step) -> Iterator[bytes]:
        saying = choice.saying(step)
        logprobs = self._logprobs(choice, step)
        flushed = self._shape.parsed_logprobs == "flushed"
        if saying.thought:
            yield self._piece(
                index, {"reasoning_content": saying.thought}, logprobs=logprobs if flushed else None, counted=True
            )
            logprobs = None if flushed else logprobs
        if self._reader.tools is not None:
            yield from self._parsed(index, choice, saying, ended=step.finish_reason is not None)
        elif saying.text:
            yield self._piece(index, {"content": saying.text}, logprobs=logprobs, counted=True)
            logprobs = None
        if logprobs is not None and flushed:
            yield self._piece(index, {}, logprobs=logprobs, counted=True)

    def _parsed(self, index: int, choice: _Choice, saying: Saying, *, ended: bool) -> Iterator[bytes]:
        """Content and calls that went through the tool parser."""
        if saying.text:
            yield self._piece(index, {"content": saying.text}, full=True, counted=True)
        for call in saying.calls:
            choice.called = True
            yield self._call(index, choice, call, counted=True)
        rest = choice.said.rest() if ended and choice.said is not None else None
        if rest is not None:
            yield self._call(index, choice, rest, counted=False)

    def _call(self, index: int, choice: _Choice, call: CallPiece, *, counted: bool) -> bytes:
        told = {
            "id": self._call_id(choice, call) if call.name else None,
            "index": call.index,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        return self._piece(index, {"tool_calls": [told]}, full=True, counted=counted)

    def _call_id(self, choice: _Choice, call: CallPiece) -> str:
        same = choice.flight.drawn.misbehaved == "same_call_id"
        return call_id(self._reader, choice.flight.asked.key, call.name or "", call.index, 0 if same else call.index)

    def _logprobs(self, choice: _Choice, step: Step) -> dict[str, Any] | None:
        """Of the ids of this step."""
        if not self._request.logprobs or step.start == step.end:
            return None
        rows = None
        if self._request.top_logprobs:
            rows = self._rows(choice)[step.start : step.end]
            if self._shape.top_logprobs == "first":
                rows = [rows[0]] * len(rows)
        return {"content": logprob_content(self._wire, step.delta_ids, step.delta_logprobs, rows)}

    def _rows(self, choice: _Choice) -> list[list[Triple]]:
        if choice.rows is None:
            drawn, prompt_ids = choice.flight.drawn, choice.flight.asked.prompt_ids
            count = self._request.top_logprobs or 0
            choice.rows = top_rows(self._wire, count, prompt_ids, drawn.output_ids, drawn.logprobs)
        return choice.rows

    def _piece(
        self,
        index: int,
        delta: dict[str, Any],
        *,
        logprobs: dict[str, Any] | None = None,
        reason: str | None = None,
        matched: Any = None,
        full: bool = False,
        counted: bool = False,
    ) -> bytes:
        """`full`: with all keys that have no value. `counted`: with usage, where that was asked for."""
        full = full or self._shape.nulls == "all"
        options = self._request.stream_options
        extra: dict[str, Any] = {"usage": None} if full else {}
        if counted and options is not None and options.continuous_usage_stats:
            reported = self._wire.cache_report and self._shape.usage_details
            extra["usage"] = usage(self._wire, self._choices[index].counts, cache_report=reported)
        choice = {
            "index": index,
            "delta": self._delta(delta, full=full),
            "logprobs": logprobs,
            "finish_reason": reason,
            "matched_stop": matched,
        }
        return event(self._chunk([choice]) | extra)

    def _delta(self, delta: dict[str, Any], *, full: bool) -> dict[str, Any]:
        if not full:
            return {"reasoning_content": None} | delta
        keys = ["role", "content", "reasoning_content"]
        if "tool_calls" in delta or self._wire.profile.chat.no_tool_calls == "null":
            keys.append("tool_calls")
        return {key: delta.get(key) for key in keys}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": EPOCH,
            "model": self._request.model,
            "choices": choices,
        }

    def end(self) -> Iterator[bytes]:
        """The last pieces."""
        for index, reason in self._ended.items():
            called = self._choices[index].called and reason["type"] == "stop"
            kind = "tool_calls" if called else reason["type"]
            yield self._piece(index, {}, reason=kind, matched=reason.get("matched"))
        yield from self._extras()
        options = self._request.stream_options
        if options is not None and options.include_usage:
            counts = summed([choice.counts for choice in self._choices], self._request.n)
            yield event(self._chunk([]) | {"usage": usage(self._wire, counts)})
        yield DONE

    def _extras(self) -> Iterator[bytes]:
        answers = [choice.flight.answered for choice in self._choices if choice.flight.answered is not None]
        extra = sglext(self._wire, self._request, answers, keys=self._shape.sglext) if answers else {}
        ids = {key: extra.pop(key) for key in ("input_ids", "output_ids") if key in extra}
        if self.stopped:
            ids = {}
        if not self._framed:
            extra, ids = extra | ids, {}
        if extra:
            yield event(self._chunk([]) | {"usage": None, "sglext": extra})
        if ids:
            yield event(self._chunk([]) | {"usage": None, "sglext": ids}, name="sglext_ids")
