"""One rollout straight against the engine's `/generate`: one reply, or several with tool calls between them."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from miles_sim.rollout.apart import apart
from miles_sim.rollout.assembly import assemble
from miles_sim.rollout.direct.reply import DirectReply, read_generation
from miles_sim.rollout.direct.request import generate_body, max_new_tokens, room
from miles_sim.rollout.direct.resume import Start, added, joined, start_of
from miles_sim.rollout.direct.tools import Tools, answer_calls
from miles_sim.rollout.engine_reply import check_recordable
from miles_sim.rollout.errors import UpstreamResponseError, UpstreamTransportError
from miles_sim.rollout.record import Record
from miles_sim.rollout.sample import Sample, Status
from miles_sim.rollout.session.headers import ROUTING_KEY
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ChatTokenizer

logger = logging.getLogger(__name__)

TRANSIENT = frozenset({408, 425, 429})
"""Status codes below 500 that say nothing against the request itself."""


@dataclass(frozen=True, kw_only=True)
class DirectInput:
    """One prompt and all that its rollout needs."""

    settings: RolloutSettings
    """`max_seq_len` caps all ids of the sample, prompt and observations included."""
    sample: Sample
    """Pending, or aborted and then gone on with; never changed."""
    sampling_params: Mapping[str, Any]
    """As `/generate` takes them; never changed. `max_new_tokens` is the budget of each reply."""
    tokenizer: ChatTokenizer
    engine_url: str
    client: httpx.AsyncClient
    tools: Tools | None = None
    """None: the first reply is the last one."""
    mask_resumed: bool = False
    """What was sampled before this call is not trained on (miles' `mask_offpolicy_in_partial_rollout`)."""
    clock: Callable[[], float] | None = None
    """Seconds, for `non_generation_time`; None: tools are not timed."""


@dataclass
class _Progress:
    """How far a rollout is."""

    ids: Sequence[int]
    own: Sequence[int]
    """Ids of the reply that is being sampled."""
    turns: int
    messages: list[Mapping[str, Any]]
    records: list[Record] = field(default_factory=list)
    halted: str | None = None
    agent_error: dict[str, str] | None = None
    engine_error: dict[str, str] | None = None
    matched: int | str | None = None
    untold: int = 0
    idle: float = 0.0


async def generate_direct(input: DirectInput) -> Sample:
    """The rollout's sample; its response is the text of its ids, less the stop that ended them.

    Status: that of the last reply; `truncated` also where `metadata["halted"]` says that a limit (`max_new_tokens`,
    `max_seq_len`, `max_turns`) left no room to go on. An engine that cannot be reached, or fails (status 5xx, 408,
    425, 429), costs nothing: the sample is aborted, carries `metadata["engine_error"]` and can be gone on with. A
    tool that raises ends the rollout likewise, under `metadata["agent_error"]` and with the last reply's status; so
    does a parser, or a template that refuses the tools' answers.
    UpstreamResponseError for a reply that cannot be trained on or a request that the engine refuses; AssemblyError
    and SettingsError, before anything is asked, for a sample or parameters that cannot be served.
    """
    budget = max_new_tokens(input.sampling_params, input.settings)
    specs = input.tools.specs if input.tools else None
    start = start_of(input.sample, input.tokenizer, input.settings, specs)
    progress = _Progress(
        ids=start.ids, own=start.ids[len(start.ids) - start.own :], turns=start.turns, messages=_asked(input, start)
    )
    while True:
        limit, halted = room(budget, input.settings, known=len(progress.ids), own=len(progress.own))
        if not limit:
            progress.halted = halted
            break
        finished = await _reply(input, progress, start, limit)
        if not finished or not await _observe(input, progress):
            break
    return _finished(input, progress, start)


async def _reply(input: DirectInput, progress: _Progress, start: Start, limit: int) -> bool:
    """Sample one reply, or what is left of it; whether it came to its own end."""
    try:
        reply = await _ask(input, progress, limit)
    except UpstreamTransportError as error:
        logger.warning("direct rollout: %s", error)
        progress.engine_error = {"type": type(error).__name__, "message": str(error)}
        reply = DirectReply("", (), (), "abort", None, {})
    progress.own = [*progress.own, *reply.output_ids]
    progress.matched, progress.untold = reply.matched, reply.untold
    said = {"role": "assistant", "content": input.tokenizer.decode(progress.own, skip_special_tokens=True)}
    number = len(progress.records)
    progress.records.append(
        Record(
            seq=start.generations + number,
            parent=start.generations + number - 1 if number else None,
            prompt_ids=progress.ids,
            output_ids=reply.output_ids,
            log_probs=reply.log_probs,
            finish_reason=reply.finish_reason,
            response_id=reply.response_id,
            meta_info=reply.meta_info,
            request_messages=list(progress.messages),
            message=said,
        )
    )
    progress.messages.append(said)
    return reply.finish_reason not in ("abort", "length")


async def _observe(input: DirectInput, progress: _Progress) -> bool:
    """Run what the reply calls and put the answers behind it; whether there is something to reply to."""
    progress.turns += 1
    if input.tools is None:
        return False
    try:
        return await _answered(input, progress, input.tools)
    except Exception as error:  # all three are someone else's, and what was sampled is not theirs to lose
        logger.warning("direct rollout: parser, tool or template failed: %r", error)
        progress.agent_error = {"type": type(error).__name__, "message": str(error)}
        return False


async def _answered(input: DirectInput, progress: _Progress, tools: Tools) -> bool:
    _, calls = tools.parser.parse_non_stream(progress.messages[-1]["content"])
    if not calls:
        return False
    if progress.turns >= tools.max_turns:
        progress.halted = "max_turns"
        return False
    began = input.clock() if input.clock else 0.0
    try:
        answers = await apart(answer_calls(calls, tools.execute, turn=progress.turns))
    finally:
        progress.idle += max(input.clock() - began, 0.0) if input.clock else 0.0
    last = progress.records[-1]
    options = dict(input.settings.template_options) or None
    ids = input.tokenizer.extend(
        [*last.prompt_ids, *last.output_ids], answers, tools=tools.specs, template_options=options
    )
    if input.settings.max_seq_len is not None and len(ids) >= input.settings.max_seq_len:
        progress.halted = "max_seq_len"
        return False
    progress.ids, progress.own = ids, ()
    progress.messages += answers
    return True


async def _ask(input: DirectInput, progress: _Progress, limit: int) -> DirectReply:
    ids = progress.ids
    body = generate_body(ids, input.sampling_params, input.settings, input.sample, limit=limit)
    content = await post(
        input.client,
        f"{input.engine_url.rstrip('/')}/generate",
        body,
        timeout=input.settings.request_timeout,
        routing_key=input.sample.routing_key,
    )
    reply = read_generation(content, prompt_tokens=len(ids))
    if reply.response_id in {record.response_id for record in progress.records}:
        raise UpstreamResponseError(f"meta_info.id: {reply.response_id!r} is that of an earlier reply of this rollout")
    check_recordable(
        reply.meta_info,
        reply.output_ids,
        prompt_tokens=len(ids),
        finish_reason=reply.finish_reason,
        offsets={},
        settings=input.settings,
        tokenizer=input.tokenizer,
    )
    return reply


async def post(
    client: httpx.AsyncClient, url: str, body: dict[str, Any], *, timeout: float, routing_key: str | None
) -> bytes:
    """The body of a successful answer. UpstreamTransportError where the engine is not there or fails,
    UpstreamResponseError where it refuses what it was asked."""
    headers = {"content-type": "application/json"}
    if routing_key is not None:
        headers[ROUTING_KEY] = routing_key
    try:
        response = await client.post(url, content=orjson.dumps(body), headers=headers, timeout=timeout)
    except httpx.DecodingError as error:
        raise UpstreamResponseError(f"body: not coded as it says: {error}") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UpstreamTransportError(f"engine: {type(error).__name__}: {error}") from error
    if response.is_success:
        return response.content
    what = f"engine: status {response.status_code}: {response.text[:500]}"
    if response.status_code >= 500 or response.status_code in TRANSIENT:
        raise UpstreamTransportError(what)
    raise UpstreamResponseError(what)


def _asked(input: DirectInput, start: Start) -> list[Mapping[str, Any]]:
    """The conversation up to the reply that is sampled next, or gone on with."""
    sample = input.sample
    if held := (sample.metadata.get("messages") if sample.response_length else None):
        return list(held[:-1])  # the last one is a reply that was broken off
    prompt = sample.prompt
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)


def _finished(input: DirectInput, progress: _Progress, start: Start) -> Sample:
    sample, settings = input.sample, input.settings
    fresh = Sample(metadata={"lifecycle": []}, tokens=list(sample.tokens), loss_mask=[], rollout_log_probs=[])
    if progress.records:
        made = assemble(
            progress.records, settings=settings, tokenizer=input.tokenizer, max_seq_len=settings.max_seq_len
        )
        fresh = fresh if made is None else made
    out = joined(sample, fresh, mask_resumed=input.mask_resumed)
    out.response = response_text(out.tokens[start.begin :], progress.matched, input.tokenizer)
    if progress.halted is not None:
        out.status = Status.TRUNCATED
    if progress.untold:
        untold = {"untold": {"turns": 0, "tokens": progress.untold}}
        out.metadata["dropped"] = added(out.metadata.get("dropped", {}), untold)
    for key in ("halted", "agent_error", "engine_error"):
        if (value := getattr(progress, key)) is not None:
            out.metadata[key] = value
    out.non_generation_time = sample.non_generation_time + progress.idle
    return out


def response_text(ids: Sequence[int], matched: int | str | None, tokenizer: ChatTokenizer) -> str:
    """Text of a response, less the stop token or the stop string that ended it, as `/generate` gives it."""
    if isinstance(matched, int) and ids and ids[-1] == matched:
        return tokenizer.decode(ids[:-1])
    text = tokenizer.decode(ids)
    if isinstance(matched, str) and matched and matched in text:
        return text[: text.rindex(matched)]
    return text
