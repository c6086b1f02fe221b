"""The three endpoints that generate: from the bytes of a request to those of its answer, whole or as a stream."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

from miles_sim.engine.admission import Admission
from miles_sim.engine.arrived import arrived
from miles_sim.engine.chat import chat_completion
from miles_sim.engine.chat_stream import ChatStream
from miles_sim.engine.completions import (
    CompletionRequest,
    CompletionStream,
    check_logprobs,
    check_prompt,
    completion,
    native,
)
from miles_sim.engine.errors import CrashError, NotModelledError, RequestError
from miles_sim.engine.flight import Answered, Flight, Step
from miles_sim.engine.formats import dialect
from miles_sim.engine.frames import Frames, Plain, plain_prompt
from miles_sim.engine.generate import GenerateStream, generate_answer, native_error, told_error
from miles_sim.engine.generate_request import MOST_ANSWERS, Batch, GenerateRequest, Single, expand
from miles_sim.engine.pace import Tail, pace, paced
from miles_sim.engine.prompt import Prompt, prompt_of, prompt_of_ids
from miles_sim.engine.reasoning import thinks
from miles_sim.engine.request import (
    ChatRequest,
    check,
    check_json,
    json_body,
    json_document,
    native_body,
    read,
    refuse_unmodelled,
)
from miles_sim.engine.said import reader_of
from miles_sim.engine.sampling import Sampling, completion_params, served
from miles_sim.engine.sampling_params import check_params, sampling_of_params
from miles_sim.engine.sse import DONE, error_event, event
from miles_sim.engine.template import Templates, asks_little
from miles_sim.engine.wire import Want, Wire, token_texts

if TYPE_CHECKING:
    from miles_sim.engine.engine import Engine, Gone

FRAMING = {"x-sglext-return-input-ids", "x-sglext-return-output-ids", "x-sglext-ids-framed"}
"""Headers that change an answer."""
RULE_TEXT = 4_096
"""Ids at a prompt's end, and characters of their text, that reply rules are matched on."""
Said = bytes | AsyncGenerator[bytes, None]
"""A JSON body, or the events of a stream."""
Feed = Callable[[int, Step], Iterable[bytes]]


class Serving:
    """Answers for one engine. All methods raise `RequestError` for what the release refuses with a status."""

    def __init__(self, engine: "Engine") -> None:
        settings = engine.settings
        self._engine = engine
        self._parsers = settings.parsers
        self._frames = Frames(engine.profile)
        self._models_little = not (settings.speculative or settings.experts or settings.indexer or settings.metrics)
        self._pace = pace(engine.profile, speculative=settings.speculative is not None)
        self.wire = Wire(
            profile=engine.profile,
            tokenizer=engine.tokenizer,
            texts=token_texts(settings.tokenizer),
            seed=engine.seed,
            metrics=settings.metrics,
            cache_report=settings.cache_report,
            incremental=settings.incremental_streaming,
        )
        self._admission = Admission(engine, self.wire)

    async def chat(
        self, body: bytes, *, content_type: str, headers: Mapping[str, str] | None = None, gone: "Gone | None" = None
    ) -> Said:
        """`/v1/chat/completions`."""
        shape = self.wire.profile.chat
        check_json(content_type)
        as_body_says = FRAMING.isdisjoint(headers or ())
        plain = self._frames.latest(body) if as_body_says else None
        if plain is not None:
            return await self._plain_chat(plain, gone)
        found = self._frames.find(json_document(body))
        document, _, frame = found
        if frame is not None and frame.templates is not None and as_body_says:
            prompt = plain_prompt(document)
            if prompt is not None:
                return await self._plain_chat(Plain(frame, frame.templates, prompt), gone, new=body)
        request, frame = self._frames.read(*found)
        framed = _obey_headers(request, headers or {}, shape.sglext)
        check(
            request,
            stream_refuses=shape.stream.refuses,
            tool_aliases=shape.tool_types == "aliases",
            context=self._engine.settings.context_length,
        )
        _check_n(request.n)
        prompt = prompt_of(request, self.wire.tokenizer, bad_arguments=shape.bad_arguments)
        sampling, want = frame.sampling, frame.want
        thinks = self._thinks(request.chat_template_kwargs or {})
        if thinks:
            want = replace(want, think_end=self._think_end)
        sampling = served(sampling, self.wire.profile, self._parsers[0], thinks=thinks)
        try:
            lora = self._admission.admit(
                prompt, sampling, want, request.adapter, hidden_states=request.return_hidden_states
            )
        except RequestError as error:
            if request.stream and shape.stream.early_error == "sse" and error.status == 400:
                return _events(error_event(str(error)), DONE)
            raise
        fields = frame.arrived(request)
        flights = [
            self._submit(
                "chat",
                prompt,
                sampling,
                want,
                request.rid if request.n == 1 else None,
                lora,
                fields,
                request.cache_key,
                streamed=request.stream,
            )
            for _ in range(max(request.n, 1))
        ]
        tool_parser, reasoning_parser = self._parsers
        reader = reader_of(
            request,
            self.wire.profile,
            tool_parser=tool_parser,
            reasoning_parser=reasoning_parser,
            array=sampling.calls_in_array,
        )
        if request.stream:
            told = ChatStream(self.wire, request, sampling, want, reader, flights, framed=framed)
            return self._stream(flights, told.feed, told.end, lambda: told.stopped, [sampling] * len(flights))
        answers = await self._chat_answers(flights, gone, n=request.n)
        if self._models_little and asks_little(request, sampling, want, reader):
            frame.templates = Templates(self.wire, frame.request, sampling, want, reader)
        return orjson.dumps(chat_completion(self.wire, request, sampling, want, answers, reader))

    async def _plain_chat(self, plain: Plain, gone: "Gone | None", *, new: bytes | None = None) -> bytes:
        """The same for a request like one that was answered before; what hangs on its frame alone was checked then.
        `new`: its body, where that was not taken lately."""
        frame, templates, prompt = plain
        lora = self._engine.adapters.resolve(frame.adapter)
        if new is not None:
            self._admission.check_ids(prompt, frame.sampling)
            self._frames.keep(new, plain)
        flight = self._engine.submit(
            prompt, frame.sampling, endpoint="chat", lora=lora, extra_key=frame.cache_key, fields=frame.fields
        )
        answered = flight.answered
        if answered is None or answered.finish_reason["type"] == "abort":
            (answered,) = await self._chat_answers([flight], gone, n=1)
        return templates.answer(answered)

    async def _chat_answers(self, flights: Sequence[Flight], gone: "Gone | None", *, n: int) -> list[Answered]:
        answers = await self._answers(flights, gone)
        if n == 0:
            raise RequestError("range() arg 3 must not be zero", kind="BadRequest")
        crashes = self.wire.profile.chat.aborted_in_queue == "crashes"
        if crashes and any(answer.from_queue for answer in answers):
            raise CrashError("'prompt_tokens'", told=True)
        return answers

    async def completions(self, body: bytes, *, content_type: str, gone: "Gone | None" = None) -> Said:
        """`/v1/completions`."""
        shape = self.wire.profile.completions
        document = json_body(body, content_type=content_type)
        request = read(CompletionRequest, document, shape.known)
        check_prompt(request)
        refuse_unmodelled(document, request, shape.known)
        _check_n(request.n)
        params = completion_params(request, self.wire.profile)
        batch = expand(native(request, params))
        try:
            flights, sampling = self._fly("completions", batch, request, hidden_states=request.return_hidden_states)
        except RequestError as error:
            if request.stream and shape.early_error == "sse" and error.status == 400:
                return _events(error_event(str(error)), DONE)
            raise
        wants = [single.want for single in batch.singles]
        if request.stream and shape.early_error == "sse" and request.logprobs == 0:
            try:
                check_logprobs(request, self.wire)
            except CrashError as error:
                return _events(error_event(str(error).partition(": ")[2]), DONE)
        check_logprobs(request, self.wire)
        if request.stream:
            told = CompletionStream(self.wire, request, sampling[0], wants, flights)
            return self._stream(
                flights, lambda n, step: told.feed(n, step, self._version), told.end, lambda: told.stopped, sampling
            )
        answers = await self._answers(flights, gone)
        if request.n == 0:
            raise RequestError("range() arg 3 must not be zero", kind="BadRequest")
        if self.wire.profile.chat.aborted_in_queue == "crashes" and any(answer.from_queue for answer in answers):
            raise CrashError("'prompt_tokens'", told=True)
        return orjson.dumps(completion(self.wire, request, sampling[0], wants, answers))

    async def generate(self, body: bytes, *, content_type: str | None, gone: "Gone | None" = None) -> Said:
        """`/generate`."""
        shape = self.wire.profile.generate
        document = native_body(body, content_type=content_type)
        request = read(GenerateRequest, document, shape.known)
        if shape.unknown_sampling == "named":
            self._check_params(request)
        try:
            batch = self._batch(document, request)
            flights, sampling = self._fly("generate", batch, request, hidden_states=bool(request.return_hidden_states))
        except RequestError as error:
            if request.stream and error.status == 400:
                return _events(event({"error": told_error(error, described=shape.stream_error)}), DONE)
            raise native_error(error) from None
        if request.stream:
            return self._generate_stream(batch, flights, sampling)
        try:
            answers = await self._answers(flights, gone)
        except RequestError as error:
            raise native_error(error) from None
        told = [
            generate_answer(self.wire, single.want, parameters, answer)
            for single, parameters, answer in zip(batch.singles, sampling, answers, strict=True)
        ]
        return orjson.dumps(told[0] if batch.whole else told)

    def _batch(self, document: Any, request: GenerateRequest) -> Batch:
        batch = expand(request)
        if request.require_reasoning and self._think_end is not None:
            counted = (replace(one, want=replace(one.want, think_end=self._think_end)) for one in batch.singles)
            batch = replace(batch, singles=tuple(counted))
        refuse_unmodelled(document, request, self.wire.profile.generate.known)
        self._check_params(request)
        return batch

    def _thinks(self, template_options: Mapping[str, Any]) -> bool:
        """The reply to a chat with these options begins with a thought."""
        parser = self._parsers[1]
        return parser is not None and thinks(parser, dialect(self.wire.profile.sglang), dict(template_options))

    @cached_property
    def _think_end(self) -> int | None:
        """The one id that ends a thought; None without a parser for thoughts, or where it takes several ids."""
        ids = self.wire.tokenizer.encode("</think>") if self._parsers[1] else []
        return ids[0] if len(ids) == 1 else None

    def _check_params(self, request: GenerateRequest) -> None:
        params = request.sampling_params or {}
        for entry in params if isinstance(params, list) else [params]:
            check_params(entry, self.wire.profile.generate)

    def _generate_stream(
        self, batch: Batch, flights: Sequence[Flight], sampling: Sequence[Sampling]
    ) -> AsyncGenerator[bytes, None]:
        told = [
            GenerateStream(self.wire, single.want, parameters, flight, index=None if batch.whole else n)
            for n, (single, parameters, flight) in enumerate(zip(batch.singles, sampling, flights, strict=True))
        ]

        def feed(index: int, step: Step) -> Iterable[bytes]:
            yield event(told[index].feed(step, self._version))

        return self._stream(flights, feed, lambda: (DONE,), lambda: False, sampling)

    def _fly(
        self, endpoint: str, batch: Batch, request: Any, *, hidden_states: Any
    ) -> tuple[list[Flight], list[Sampling]]:
        """All checked before the first one flies."""
        always = "require_reasoning" not in self.wire.profile.generate.known and self._think_end is not None
        sampling = [
            served(
                sampling_of_params(one.params), self.wire.profile, None, thinks=always or one.want.think_end is not None
            )
            for one in batch.singles
        ]
        prompts = _prompts(batch, self.wire)
        fields = arrived(request)
        loras = [
            self._admission.admit(prompt, parameters, single.want, single.lora, hidden_states=hidden_states)
            for prompt, parameters, single in zip(prompts, sampling, batch.singles, strict=True)
        ]
        flights = [
            self._submit(
                endpoint,
                prompt,
                parameters,
                single.want,
                single.rid,
                lora,
                fields,
                single.extra_key,
                streamed=request.stream,
            )
            for prompt, parameters, single, lora in zip(prompts, sampling, batch.singles, loras, strict=True)
        ]
        return flights, sampling

    def _submit(
        self,
        endpoint: str,
        prompt: Prompt,
        sampling: Sampling,
        want: Want,
        rid: str | None,
        lora: str | None,
        fields: tuple[str, ...],
        extra_key: str | None,
        *,
        streamed: bool,
    ) -> Flight:
        return self._engine.submit(
            prompt,
            sampling,
            endpoint=endpoint,
            rid=rid,
            lora=lora,
            extra_key=extra_key,
            fields=fields,
            cache_limit=want.logprob_start if want.logprobs and want.logprob_start >= 0 else None,
            streamed=streamed,
        )

    async def _answers(self, flights: Sequence[Flight], gone: "Gone | None") -> list[Answered]:
        """All of them; where one waits, the others fly on meanwhile."""
        try:
            answers = [await self._engine.answer(flight, gone=gone) for flight in flights]
        except BaseException:
            for flight in flights:
                self._engine.scheduler.drop(flight)
            raise
        for answer in answers:
            answer.raise_for_status()
        return answers

    @property
    def _version(self) -> str:
        return self._engine.scheduler.weight_version

    async def _stream(
        self,
        flights: Sequence[Flight],
        feed: Feed,
        end: Callable[[], Iterable[bytes]],
        stopped: Callable[[], bool],
        sampling: Sequence[Sampling],
    ) -> AsyncGenerator[bytes, None]:
        """The events, one step of each flight in turn. Closed before the end, it aborts them. `sampling`: of each."""
        server, tokenizer = self._engine.settings.stream_interval, self.wire.tokenizer
        steps = {
            n: paced(
                self._engine.steps(flight), asked.stream_interval or server, self._pace, Tail(asked.stop, tokenizer)
            )
            for n, (flight, asked) in enumerate(zip(flights, sampling, strict=True))
        }
        try:
            while steps and not stopped():
                for n in list(steps):
                    step = await anext(steps[n], None)
                    if step is None:
                        del steps[n]
                        continue
                    for piece in feed(n, step):
                        yield piece
                    if stopped():
                        break
            for piece in end():
                yield piece
        finally:
            for flight in flights:
                self._engine.scheduler.drop(flight)


async def _events(*events: bytes) -> AsyncGenerator[bytes, None]:
    for piece in events:
        yield piece


def _check_n(n: int) -> None:
    if n > MOST_ANSWERS:
        raise NotModelledError("n", n, f"up to {MOST_ANSWERS}")


def _obey_headers(request: ChatRequest, headers: Mapping[str, str], known: tuple[str, ...]) -> bool:
    """Sets what headers ask for in place of fields; gives whether ids come as an event of their own."""
    for name, key in (("input", "input_ids"), ("output", "output_ids")):
        if key in known and headers.get(f"x-sglext-return-{name}-ids") == "1":
            setattr(request, f"return_{key}_in_sglext", True)
    return "input_ids" in known and headers.get("x-sglext-ids-framed") == "1"


def _prompts(batch: Batch, wire: Wire) -> list[Prompt]:
    """One a single; equal prompts, side by side, are read once."""
    prompts: list[Prompt] = []
    before: Single | None = None
    for single in batch.singles:
        same = before is not None and single.text is before.text and single.input_ids is before.input_ids
        prompts.append(prompts[-1] if same else _prompt(single, wire))
        before = single
    return prompts


def _prompt(single: Single, wire: Wire) -> Prompt:
    ids = wire.tokenizer.encode(single.text or "") if single.input_ids is None else single.input_ids
    known = [token for token in ids[-RULE_TEXT:] if 0 <= token < wire.tokenizer.vocab_size]
    return prompt_of_ids(ids, wire.tokenizer.decode(known)[-RULE_TEXT:])
