"""One rollout: open a session, run the agent against it, collect its samples, delete the session."""

import asyncio
import copy
import hashlib
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import httpx

from miles_sim.rollout.apart import apart
from miles_sim.rollout.errors import AssemblyError, RolloutError, RolloutIdentityError, SessionError, SettingsError
from miles_sim.rollout.plain import not_json
from miles_sim.rollout.sample import RESERVED, Sample, Status
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.rollout.wire import SamplesReply, check_input, decode_samples
from miles_sim.rollout.within import within

logger = logging.getLogger(__name__)

Agent = Callable[..., Awaitable[dict[str, Any] | None]]
"""`await agent(base_url=…, prompt=…, request_kwargs=…, metadata=…)`: miles' agent function. It talks chat completions
to `base_url + /v1/chat/completions`; what it returns becomes its samples' metadata, a scalar `reward` their reward."""

RENAMED = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "sampling_seed": "seed"}
"""Sampling parameters whose name differs between `/generate` and chat completions."""

CHAT_FIELDS = frozenset(
    """
    frequency_penalty logit_bias max_tokens max_completion_tokens n presence_penalty response_format seed stop
    temperature top_p user tools tool_choice parallel_tool_calls reasoning_effort top_k min_p min_tokens regex ebnf
    repetition_penalty stop_token_ids stop_regex ignore_eos continue_final_message skip_special_tokens lora_path
    session_params separate_reasoning chat_template_kwargs custom_logit_processor custom_params extra_key
    cache_salt priority
    """.split()  # noqa: SIM905 - as short words they can be read
)
"""What chat completions take of the sampling parameters (SGLang's `ChatCompletionRequest`), less what the agent
(`model`, `messages`) and the session server (`input_ids`, `logprobs`, `stream`, …) set."""


@dataclass(frozen=True, kw_only=True)
class GenerateInput:
    """One prompt and all that its rollout needs."""

    settings: RolloutSettings
    sample: Sample
    """The prompt's sample; never changed."""
    sampling_params: Mapping[str, Any]
    """Under miles' names (`max_new_tokens`, `sampling_seed`, …)."""
    agent: Agent
    session_url: str | Sequence[str]
    """The session server; of several, one is chosen by what the sample is, see `session_server`."""
    client: httpx.AsyncClient
    evaluation: bool = False
    """Read by nothing here, and given to neither the agent nor the hooks: for what wraps `generate`, as in miles."""


@dataclass(frozen=True)
class GenerateOutput:
    """`samples`: a list under v2, also of one; a single sample under v1."""

    samples: Sample | list[Sample]
    session_metadata: Mapping[str, Any] = field(default_factory=dict)
    """What the session server tells of the session (`collect.Collected`); empty where it could not be asked."""
    empty_reason: str | None = None
    """Why nothing was generated: `no_records`, `all_truncated`, `none_picked`, or `collect_failed`."""

    @property
    def as_list(self) -> list[Sample]:
        return self.samples if isinstance(self.samples, list) else [self.samples]


async def generate(input: GenerateInput) -> GenerateOutput:
    """Samples of one rollout.

    An agent that raises costs nothing that was generated: the samples carry `metadata["agent_error"]`; so it is with
    one that raises `asyncio.CancelledError` by itself. Where collecting times out, its connection breaks or its answer
    is not coded as it says, or where nothing was generated, the result is one aborted copy of the input.
    RolloutIdentityError before the agent runs; AssemblyError where the session's records, the hooks or the agent's
    metadata are at fault; SessionError where no session can be opened, or the session server answers with an error.

    Made again is what changes nothing when it is: the collect and the delete request, where a connection breaks
    (`collect_tries`, within `collect_timeout`). Never: the open request, whose answer alone knows the session; what was
    answered, whatever the status; what timed out; the agent's requests and the engine's, which are the agent's to
    repeat, as each is paid for. Cancelled, at whatever stage, it deletes its session before it ends.
    """
    settings = input.settings
    identity = _identity(input.sample, settings)
    check_input(input.sample)
    _check_metadata(input.sample, settings)
    keywords = request_kwargs(input.sampling_params)
    session = await _opened(input)
    try:
        agent_metadata, agent_error = await _run_agent(input, session, keywords)
        fault = not_json(agent_metadata, "agent metadata")
        if fault:
            raise AssemblyError(fault)
        idle = _tool_time(agent_metadata)
        reply = await _collect(input, session, agent_metadata)
    finally:
        await _through(_delete(input, session))
    samples = reply.samples if reply is not None and reply.samples else [_aborted(input.sample)]
    for sample in samples:
        if identity is not None and (settings.identity == "always" or len(samples) > 1):
            sample.rollout_id = identity
        if agent_error is not None:
            sample.metadata["agent_error"] = dict(agent_error)
        if idle is not None:
            sample.non_generation_time = idle
    told, reason = ({}, "collect_failed") if reply is None else (reply.session_metadata, reply.empty_reason)
    return GenerateOutput(samples if settings.session == "v2" else samples[0], told, reason)


def session_server(urls: str | Sequence[str], sample: Sample) -> str:
    """The server for a sample's session: a pure function of the sample, so that runs can be repeated.

    Samples with a `routing_key` stay together by it; others go round by their effective id.
    SettingsError for an empty list.
    """
    if isinstance(urls, str):
        return urls
    if not urls:
        raise SettingsError("session_url: an empty list; at least one is needed")
    if sample.routing_key is not None:
        number = int.from_bytes(hashlib.blake2b(sample.routing_key.encode(), digest_size=8).digest(), "big")
    else:
        number = sample.effective_id or 0
    return urls[number % len(urls)]


def request_kwargs(sampling_params: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling parameters as keywords of a chat completion; what it does not take, and None, is left out.

    SettingsError for what is no mapping, or a number that is not finite.
    """
    if not isinstance(sampling_params, Mapping):
        raise SettingsError(f"sampling_params: {type(sampling_params).__name__} is not a mapping")
    for name, value in sampling_params.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise SettingsError(f"sampling_params.{name}: {value!r} is not a finite number")
    renamed = {RENAMED[name]: value for name, value in sampling_params.items() if name in RENAMED}
    merged = {**renamed, **{name: value for name, value in sampling_params.items() if name not in RENAMED}}
    return {name: copy.deepcopy(v) for name, v in merged.items() if name in CHAT_FIELDS and v is not None}


def _identity(sample: Sample, settings: RolloutSettings) -> int | None:
    """The id for a v2 rollout's samples; v1 leaves the input's."""
    for name in ("rollout_id", "index"):
        value = getattr(sample, name)
        if value is not None and type(value) is not int:
            raise RolloutIdentityError(f"{name}: {value!r} is not None or a whole number")
    if settings.session == "v1":
        return None
    if sample.effective_id is None:
        raise RolloutIdentityError(
            "rollout_id: None, and index: None; a v2 rollout needs one of them, as its samples must share an id"
        )
    return sample.effective_id


def _check_metadata(sample: Sample, settings: RolloutSettings) -> None:
    """What would be overwritten in the end is refused before there is anything to lose."""
    for key in RESERVED:
        if key in sample.metadata and (key != "messages" or settings.record_messages):
            raise AssemblyError(
                f"input sample: metadata.{key}: set by assembly; rename it, or reset_for_retry what was sampled before"
            )


async def _opened(input: GenerateInput) -> str:
    """The URL of a new session; if this task is cancelled meanwhile, none is left behind."""
    opening = asyncio.ensure_future(_open(input))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await _through(_close(input, opening))
        raise


async def _close(input: GenerateInput, opening: "asyncio.Future[str]") -> None:
    try:
        session = await opening
    except Exception:  # there is no session, and what is raised in the end is the cancellation
        return
    await _delete(input, session)


async def _open(input: GenerateInput) -> str:
    base = session_server(input.session_url, input.sample).rstrip("/")
    timeout = input.settings.collect_timeout
    try:
        response = await input.client.post(f"{base}/sessions", json={}, timeout=timeout)
        _check(response, "open")
        return f"{base}/sessions/{response.json()['session_id']}"
    except (httpx.RequestError, httpx.InvalidURL, KeyError, TypeError, ValueError) as error:
        if isinstance(error, RolloutError):
            raise
        raise SessionError(f"open session: {type(error).__name__}: {error}") from error


async def _run_agent(
    input: GenerateInput, session: str, keywords: dict[str, Any]
) -> tuple[dict[str, Any] | None, dict[str, str] | None]:
    """What the agent returned, and what it raised."""
    metadata = copy.deepcopy(input.sample.metadata)
    if input.settings.max_seq_len is not None:
        metadata["max_seq_len"] = input.settings.max_seq_len
    metadata["session_server_id"] = _netloc(session.rpartition("/sessions/")[0])
    try:
        agent = input.agent(
            base_url=session,
            prompt=copy.deepcopy(input.sample.prompt),
            request_kwargs=keywords,
            metadata=metadata,
        )
        returned: Any = await apart(agent)
    except Exception as error:
        logger.warning("agent failed: %r", error)
        return None, {"type": type(error).__name__, "message": str(error)}
    if returned is not None and not isinstance(returned, dict):
        raise AssemblyError(f"agent metadata: {type(returned).__name__} is not a dict or None")
    return returned, None


@lru_cache(maxsize=64)
def _netloc(url: str) -> str:
    return httpx.URL(url).netloc.decode()


async def _collect(input: GenerateInput, session: str, agent_metadata: dict[str, Any] | None) -> SamplesReply | None:
    """The session's samples; None where they could not be fetched."""
    settings = input.settings
    body: dict[str, Any] = {"max_seq_len": settings.max_seq_len}
    if agent_metadata is not None:
        body["metadata"] = agent_metadata
    timeout = settings.collect_timeout
    try:
        request = _tried(settings, lambda: input.client.post(f"{session}/samples", json=body, timeout=timeout))
        response = await within(timeout, request)
    except (httpx.RequestError, asyncio.TimeoutError) as error:
        logger.warning("collecting samples failed: %r", error)
        return None
    _check(response, "collect")
    return decode_samples(response.content, input.sample, session=settings.session)


async def _delete(input: GenerateInput, session: str) -> None:
    timeout = input.settings.collect_timeout
    try:
        request = _tried(input.settings, lambda: input.client.delete(session, timeout=timeout))
        await within(timeout, request)
    except Exception as error:  # what is told or raised already stands
        logger.warning("deleting a session failed: %r", error)


async def _tried(settings: RolloutSettings, ask: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
    """The answer to a request that may be made more than once; what breaks its last try is raised."""
    for _ in range(settings.collect_tries - 1):
        try:
            return await ask()
        except httpx.TimeoutException:
            raise
        except httpx.TransportError as error:
            logger.warning("asked again: %r", error)
    return await ask()


async def _through(work: Any) -> None:
    """Await `work` to its end even if this task is cancelled meanwhile; the cancellation then goes on."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _check(response: httpx.Response, what: str) -> None:
    if response.is_success:
        return
    kind = AssemblyError if response.status_code == 422 else SessionError
    raise kind(f"{what} session: status {response.status_code}: {response.text[:2000]}")


def _aborted(sample: Sample) -> Sample:
    copied = copy.deepcopy(sample)
    copied.status = Status.ABORTED
    return copied


def _tool_time(agent_metadata: Mapping[str, Any] | None) -> float | None:
    """Seconds that the agent spent outside of generation (`agent_metrics.total_tool_time`), if it says."""
    metrics = (agent_metadata or {}).get("agent_metrics")
    seconds = metrics.get("total_tool_time") if isinstance(metrics, Mapping) else None
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise AssemblyError(f"agent metadata.agent_metrics.total_tool_time: {seconds!r} is no number of seconds")
    return seconds
