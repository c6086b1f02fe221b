"""miles-sim's own generate and merge as a target: in this process, or served by a worker to another one."""

import asyncio
import platform
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Literal

import httpx

import miles_sim
from miles_sim.plain_http import PlainClient
from miles_sim.rollout.generate import GenerateInput, GenerateOutput, generate
from miles_sim.rollout.sample import Sample
from miles_sim.rollout.selection import POSTPROCESSORS
from miles_sim.rollout.session.server import SessionServer
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.targets import hooks
from miles_sim.targets.base import CAPABILITIES, AgentFunction, Job, TargetInfo
from miles_sim.targets.crossing import Crossing
from miles_sim.targets.ended import Ending
from miles_sim.targets.observation import SCHEMA
from miles_sim.targets.reference_batch import batch_view
from miles_sim.targets.reference_direct import play_direct
from miles_sim.targets.views import rollout_view, sample_view
from miles_sim.tokenizer import built_in
from miles_sim.transport import LocalNetwork, serve

SESSION_HOST = "sessions"
_FROM_THE_JOB = (
    "session",
    "speculative_algorithm",
    "max_seq_len",
    "routing_replay",
    "routed_experts_layers",
)


class ReferenceTarget:
    """`miles_sim.rollout` under contract.

    With `network` its session server is a host of that network, and so must the engine be, or be reachable over a
    real connection; without, it listens on loopback. `settings` are fields of `RolloutSettings`, but for those that
    a job decides.
    """

    def __init__(self, network: LocalNetwork | None = None, **settings: Any) -> None:
        decided = [name for name in settings if name in _FROM_THE_JOB]
        if decided:
            raise ValueError(f"settings: {decided[0]!r} is decided by the scenario that is played")
        self._network = network
        self._settings = RolloutSettings(**settings)
        self._absent = {} if network is not None else {"faults.cancel": "its rollouts run in another process"}
        self._cancellers = {} if network is None else network.cancellers

    async def describe(self) -> TargetInfo:
        return TargetInfo(
            name="reference",
            version=miles_sim.__version__,
            python=platform.python_version(),
            optimize=sys.flags.optimize,
            capabilities=[name for name in CAPABILITIES if name not in self._absent],
            absent=self._absent,
            stand_ins=[],
        )

    async def play(self, job: Job, agent: AgentFunction) -> dict[str, Any]:
        try:
            return await self._played(job, agent)
        finally:
            self._cancellers.clear()  # they hold the rollouts, and all that came of them

    async def _played(self, job: Job, agent: AgentFunction) -> dict[str, Any]:
        tokenizer = built_in(job["tokenizer"])
        if job["session"] == "direct":
            settings = self._for(job, "v1")
            async with _way(self._network) as way:
                results = await play_direct(job, agent, settings, tokenizer, way, self._cancellers)
            return _document(job, results)
        settings = self._for(job, job["session"])
        server = SessionServer(settings, tokenizer, job["engine_url"], transport=self._network)
        async with self._reachable(server, job) as url, _way(self._network) as way:
            rollouts = [_Rollout(job, number, settings, url, way, agent) for number in range(len(job["inputs"]))]
            self._cancellers.update((number, rollout.cancel) for number, rollout in enumerate(rollouts))
            results = await asyncio.gather(*(rollout.play() for rollout in rollouts))
            left = {"sessions_open": server.sessions_open, "requests_open": server.requests_open}
        return {**_document(job, results), **left}

    def _for(self, job: Job, session: Literal["v1", "v2"]) -> RolloutSettings:
        decided: dict[str, Any] = {
            "session": session,
            "speculative_algorithm": job["speculative_algorithm"],
            "max_seq_len": job["max_seq_len"],
            "routing_replay": job["routing_replay"],
            "routed_experts_layers": job["routed_experts_layers"],
        }
        if (matcher := job.get("message_matcher", "strict")) != "strict":
            decided["message_matcher"] = matcher
        if (most := job.get("max_nodes")) is not None:
            decided["max_nodes"] = most
        if (adapter := job.get("lora")) is not None:
            decided["lora_path"] = adapter
        asked = job.get("hooks")
        if asked and asked["picker"] != "default":
            decided["sample_picker"] = hooks.picker(asked["picker"])
        if asked and asked["postprocessor"] != "default":
            decided["sample_postprocessor"] = hooks.postprocessor(asked["postprocessor"], POSTPROCESSORS["default"])
        return replace(self._settings, **decided)

    async def close(self) -> None:
        """Nothing outlives a play."""

    @asynccontextmanager
    async def _reachable(self, server: SessionServer, job: Job) -> AsyncIterator[str]:
        try:
            if self._network is None:
                async with serve(server.app, port=job.get("session_listen", 0)) as url:
                    yield job.get("session_url", url)
                return
            self._network.mount(SESSION_HOST, server.app)
            try:
                yield f"http://{SESSION_HOST}"
            finally:
                self._network.unmount(SESSION_HOST)
        finally:
            await server.aclose()


class _Rollout:
    """One input on its way through `generate`."""

    def __init__(
        self,
        job: Job,
        number: int,
        settings: RolloutSettings,
        url: str,
        way: httpx.AsyncBaseTransport,
        agent: AgentFunction,
    ) -> None:
        self._number = number
        self._agent = agent
        self._agent_ran = False
        self._ending = Ending[GenerateOutput]()
        self._settings = settings
        self._sample = Sample(**job["inputs"][number])
        self._sampling = job["sampling"][number]
        self._url = url
        self._crossing = Crossing(way, job.get("garble"))

    async def play(self) -> tuple[dict[str, Any], Any]:
        """Its view, and what `generate` returned."""
        before = sample_view(self._sample)
        output, error = await self._ending.outcome(generate(self._asked()))
        returned = None if output is None else output.samples
        view = rollout_view(before, self._sample, returned, agent_ran=self._agent_ran, error=error)
        return {**view, "payload": self._crossing.payload}, returned

    def _asked(self) -> GenerateInput:
        """Not kept: it holds this rollout in turn, and only the collector would find the two."""
        return GenerateInput(
            settings=self._settings,
            sample=self._sample,
            sampling_params=self._sampling,
            agent=self._run_agent,
            session_url=self._url,
            client=PlainClient(self._crossing),
        )

    def cancel(self) -> None:
        """End it."""
        self._ending.cancel()

    async def _run_agent(
        self, base_url: str, prompt: Any, request_kwargs: dict[str, Any], metadata: dict[str, Any]
    ) -> dict[str, Any] | None:
        self._agent_ran = True
        return await self._agent(self._number, base_url, request_kwargs, metadata)


@asynccontextmanager
async def _way(network: LocalNetwork | None) -> AsyncIterator[httpx.AsyncBaseTransport]:
    if network is not None:  # its owner's to close
        yield network
        return
    async with httpx.AsyncHTTPTransport(verify=False, trust_env=False, limits=_MANY) as way:
        yield way


_MANY = httpx.Limits(max_connections=None, max_keepalive_connections=None)


def _document(job: Job, results: list[tuple[dict[str, Any], Any]]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "session": job["session"],
        "rollouts": [view for view, _ in results],
        "batch": batch_view([returned for _, returned in results], job["batch"]),
    }
