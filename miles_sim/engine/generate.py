"""The answers of `/generate`, whole or step by step."""

from collections.abc import Iterable
from typing import Any

from miles_sim.engine.detokenizer import TextStream
from miles_sim.engine.errors import RequestError
from miles_sim.engine.finish import text_of
from miles_sim.engine.flight import Answered, Flight, Step
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.wire import Want, Wire, finished, meta_info, stepped


def generate_answer(wire: Wire, want: Want, sampling: Sampling, answered: Answered) -> dict[str, Any]:
    """The object of one finished request."""
    values = {
        "text": text_of(answered.output_ids, answered.finish_reason, wire.tokenizer, wire.trim(sampling)),
        "output_ids": answered.output_ids,
        "meta_info": meta_info(wire, want, finished(answered)),
    }
    if want.prompt_token_ids:
        values["prompt_token_ids"] = answered.prompt_ids
    return {key: values[key] for key in wire.profile.generate.body if key in values}


class GenerateStream:
    """The pieces of one streamed request: objects as of a finished one, cumulative but for what the release tells
    only the new part of."""

    def __init__(self, wire: Wire, want: Want, sampling: Sampling, flight: Flight, *, index: int | None) -> None:
        """`index`: place in a batch."""
        self._wire, self._want, self._flight, self._index = wire, want, flight, index
        self._text = TextStream(wire.tokenizer, wire.trim(sampling))
        self._told: list[str] = []

    def feed(self, step: Step, weight_version: str) -> dict[str, Any]:
        """The object of this step; `weight_version`: the engine's."""
        wire = self._wire
        new: Iterable[str] = wire.profile.generate.incremental if wire.incremental else ()
        reason = step.finish_reason
        text = self._text.push(step.delta_ids) if reason is None else self._text.end(step.ids, reason)
        self._told.append(text)
        known = stepped(self._flight, step, weight_version, start=step.start if "logprobs" in new else 0)
        values: dict[str, Any] = {
            "text": text if "text" in new else "".join(self._told),
            "output_ids": step.delta_ids if "output_ids" in new else step.ids,
            "meta_info": meta_info(wire, self._want, known),
        }
        if self._want.prompt_token_ids:
            values["prompt_token_ids"] = self._flight.asked.prompt_ids
        told = {key: values[key] for key in wire.profile.generate.body if key in values}
        return told if self._index is None else told | {"index": self._index}


def told_error(error: RequestError, *, described: str) -> dict[str, Any]:
    """An error in a stream."""
    told: dict[str, Any] = {"message": str(error)}
    if described == "described":
        told |= {"type": "invalid_request_error", "code": error.status, "retryable": False}
    return told


def native_error(error: RequestError) -> RequestError:
    """As `/generate` words what the generation path refuses (http_server.py `_create_error_response`); what it falls
    over is the framework's to answer."""
    if error.status == 500:
        error.body = {}
    if error.status == 400 and error.body.get("type") == "BadRequestError":
        error.body = {"error": {"message": str(error)}}
    return error
