"""`/v1/completions`: the request, and its answer whole or as a stream."""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import field_validator

from miles_sim.engine.chat import sglext
from miles_sim.engine.clock import EPOCH
from miles_sim.engine.detokenizer import TextStream
from miles_sim.engine.errors import CrashError, RequestError
from miles_sim.engine.finish import text_of
from miles_sim.engine.flight import Answered, Flight, Reason, Step
from miles_sim.engine.fragments import entries
from miles_sim.engine.generate_request import GenerateRequest
from miles_sim.engine.request import GenerationRequest
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.sse import DONE, abort_event, error_event, event
from miles_sim.engine.usage import Counts, counts_of, summed, usage
from miles_sim.engine.wire import Triple, Want, Wire, finished, meta_info, stepped, weight_spans
from miles_sim.tokenizer import ByteTokenizer


class CompletionRequest(GenerationRequest):
    """The fields of SGLang's `CompletionRequest` that decide an answer here (protocol.py)."""

    prompt: list[int] | list[list[int]] | str | list[str]
    echo: bool = False
    logprobs: int | None = None
    max_tokens: int = 16
    rid: str | list[str] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    no_stop_trim: bool = False
    skip_special_tokens: bool = True
    json_schema: str | None = None

    @field_validator("max_tokens")
    @classmethod
    def _positive(cls, value: int) -> int:
        if value <= 0:
            raise ValueError("max_tokens must be positive")
        return value

    @property
    def echoes_logprobs(self) -> bool:
        """The prompt's logprobs are asked for."""
        return self.echo and bool(self.logprobs)


def check_prompt(request: CompletionRequest) -> None:
    """`RequestError` for a prompt that says nothing (serving_completions.py `_validate_request`)."""
    prompt = request.prompt
    if not prompt or (isinstance(prompt, list) and not any(prompt)):
        raise RequestError("Prompt cannot be empty")


def check_logprobs(request: CompletionRequest, wire: Wire) -> None:
    """`CrashError` for `logprobs: 0` at a release that looks for the alternatives nobody asked for."""
    shape = wire.profile.completions
    if request.logprobs == 0 and request.echo and shape.echo_no_top_logprobs == "crashes":
        raise CrashError("'input_top_logprobs'", told=True)
    if request.logprobs == 0 and shape.no_top_logprobs == "crashes":
        raise CrashError("'output_top_logprobs'", told=True)


def native(request: CompletionRequest, sampling: dict[str, Any]) -> GenerateRequest:
    """The `/generate` request that SGLang makes of it (serving_completions.py `_convert_to_internal_request`)."""
    prompt: Any = request.prompt
    text = prompt if isinstance(prompt, str) or isinstance(prompt[0], str) else None
    return GenerateRequest(
        text=text,
        input_ids=None if text is not None else prompt,
        sampling_params=sampling,
        rid=request.rid,
        lora_path=request.adapter,
        extra_key=request.extra_key,
        cache_salt=request.cache_salt,
        return_logprob=request.logprobs is not None,
        logprob_start_len=0 if request.echoes_logprobs else -1,
        top_logprobs_num=request.logprobs or 0,
        return_text_in_logprobs=True,
        return_hidden_states=request.return_hidden_states,
        return_routed_experts=request.return_routed_experts,
        routed_experts_start_len=request.routed_experts_start_len,
    )


def echoes(request: CompletionRequest, tokenizer: ByteTokenizer) -> list[str]:
    """The text of each prompt, as `echo` repeats it."""
    prompt: Any = request.prompt
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt[0], str):
        return list(prompt)
    every = prompt if isinstance(prompt[0], list) else [prompt]
    return [tokenizer.decode(ids, skip_special_tokens=True) for ids in every]


def completion(
    wire: Wire, request: CompletionRequest, sampling: Sampling, wants: Sequence[Want], answers: Sequence[Answered]
) -> dict[str, Any]:
    """The whole body; one choice an answer."""
    shape, first = wire.profile.completions, answers[0]
    heads = echoes(request, wire.tokenizer) if request.echo else []
    metadata: dict[str, Any] = {"weight_version": first.weight_version}
    if wire.profile.weight_versions:
        metadata["weight_versions"] = weight_spans(first)
    choices = [
        _choice(wire, request, sampling, want, answer, n, heads[n // request.n] if heads else "")
        for n, (want, answer) in enumerate(zip(wants, answers, strict=True))
    ]
    body = {
        "id": first.id,
        "object": "text_completion",
        "created": answers[0].timing.created,
        "model": request.model,
        "choices": choices,
        "usage": usage(wire, summed(list(map(counts_of, map(finished, answers), wants)), request.n)),
        "metadata": metadata,
        "sglext": sglext(wire, request, answers, keys=shape.sglext),
    }
    return {key: body[key] for key in shape.response if key != "sglext" or body[key]}


def _choice(
    wire: Wire,
    request: CompletionRequest,
    sampling: Sampling,
    want: Want,
    answered: Answered,
    index: int,
    head: str,
) -> dict[str, Any]:
    text = text_of(answered.output_ids, answered.finish_reason, wire.tokenizer, wire.trim(sampling))
    logprobs = None
    if request.logprobs is not None:
        logprobs = _logprobs(wire, request, meta_info(wire, want, finished(answered)), prompt=request.echoes_logprobs)
    ids = (answered.output_ids, answered.prompt_ids) if request.return_token_ids else (None, None)
    return _shaped(wire, index, head + text, logprobs, answered.finish_reason, *ids)


def _shaped(
    wire: Wire,
    index: int,
    text: str,
    logprobs: dict[str, Any] | None,
    reason: Reason | None,
    token_ids: Sequence[int] | None,
    prompt_token_ids: Sequence[int] | None,
) -> dict[str, Any]:
    values: dict[str, Any] = {
        "index": index,
        "text": text,
        "logprobs": logprobs,
        "finish_reason": reason and reason["type"],
        "matched_stop": reason and reason.get("matched"),
    }
    if token_ids is not None:
        values["token_ids"] = token_ids
    if prompt_token_ids is not None:
        values["prompt_token_ids"] = prompt_token_ids
    return {key: values[key] for key in wire.profile.completions.choice if key in values}


def _logprobs(wire: Wire, request: CompletionRequest, meta: dict[str, Any], *, prompt: bool) -> dict[str, Any]:
    """`LogProbs` of output ids, and before them of the prompt's (utils.py `to_openai_style_logprobs`)."""
    sides = (["input"] if prompt else []) + ["output"]
    triples: list[Triple] = [triple for side in sides for triple in entries(meta[f"{side}_token_logprobs"])]
    rows = [row for side in sides for row in meta.get(f"{side}_top_logprobs", ())] if request.logprobs else []
    return {
        "text_offset": [-1] * len(triples),
        "token_logprobs": [triple[0] for triple in triples],
        "tokens": [_text(wire, triple) for triple in triples],
        "top_logprobs": [None if row is None else {_text(wire, triple): triple[0] for triple in row} for row in rows],
    }


def _text(wire: Wire, triple: Triple) -> str:
    _, token, text = triple
    raw = wire.texts.raw[token]
    if wire.profile.completions.token_texts == "token" and text == "\ufffd":
        return bytes(raw).decode("latin-1")
    return str(text)


class CompletionStream:
    """Feed it each step of each choice, then `end`."""

    def __init__(
        self,
        wire: Wire,
        request: CompletionRequest,
        sampling: Sampling,
        wants: Sequence[Want],
        flights: Sequence[Flight],
    ) -> None:
        self.stopped = False
        """An error has ended it: feed it no more."""
        self._wire, self._request, self._wants, self._flights = wire, request, wants, flights
        self._heads = echoes(request, wire.tokenizer) if request.echo else []
        self._counts = [Counts() for _ in flights]
        self._id = ""
        self._texts = [TextStream(wire.tokenizer, wire.trim(sampling)) for _ in flights]

    def feed(self, index: int, step: Step, weight_version: str) -> Iterator[bytes]:
        """The piece of one step; `weight_version`: the engine's."""
        flight, reason, first = self._flights[index], step.finish_reason, step.start == 0
        known = stepped(flight, step, weight_version, start=step.start)
        self._id, self._counts[index] = flight.id, counts_of(known, self._wants[index])
        refusal = self._refusal(step) if reason is not None and reason["type"] == "abort" else None
        if refusal is not None:
            self.stopped = True
            yield refusal
            return
        head = self._heads[index // self._request.n] if first and self._heads else ""
        text = self._texts[index].push(step.delta_ids) if reason is None else self._texts[index].end(step.ids, reason)
        logprobs = None
        if self._request.logprobs is not None and step.end > step.start:
            meta = meta_info(self._wire, self._wants[index], known)
            logprobs = _logprobs(self._wire, self._request, meta, prompt=first and self._request.echoes_logprobs)
        asked = self._request.return_token_ids
        choice = _shaped(
            self._wire,
            index,
            head + text,
            logprobs,
            reason,
            step.delta_ids if asked else None,
            flight.asked.prompt_ids if asked and first else None,
        )
        yield event(self._chunk([choice]) | {"usage": self._usage(index)})

    def _refusal(self, step: Step) -> bytes | None:
        """The error that an abort is told as; None: it is told as an ordinary end."""
        reason, shape = step.finish_reason or {}, self._wire.profile.chat.stream
        if step.answered is not None and step.answered.from_queue and "status_code" not in reason:
            if shape.aborted_in_queue == "nothing":
                return error_event("'prompt_tokens'")
            return abort_event(reason) if shape.aborted_in_queue == "error" else None
        if reason.get("status_code") is not None:
            return abort_event(reason) if shape.aborted_with_status == "error" else None
        return error_event("'NoneType' object has no attribute 'name'") if shape.aborted == "cut" else None

    def _usage(self, index: int) -> dict[str, Any] | None:
        options = self._request.stream_options
        if options is None or not options.continuous_usage_stats:
            return None
        return usage(self._wire, self._counts[index], cache_report=False)

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "text_completion",
            "created": EPOCH,
            "model": self._request.model,
            "choices": choices,
        }

    def end(self) -> Iterator[bytes]:
        """The last pieces."""
        answers = [flight.answered for flight in self._flights if flight.answered is not None]
        keys = self._wire.profile.completions.stream_sglext
        extra = sglext(self._wire, self._request, answers, keys=keys) if answers else {}
        if extra:
            yield event(self._chunk([]) | {"usage": None, "sglext": extra})
        options = self._request.stream_options
        if options is not None and options.include_usage:
            told = usage(self._wire, summed(self._counts, self._request.n))
            yield event(self._chunk([]) | {"usage": {key: value for key, value in told.items() if value is not None}})
        yield DONE
