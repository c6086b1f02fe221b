"""Whole rollouts a second: session, agent, samples, one after the other, beside miles' own `generate`."""

import asyncio
import tempfile
from dataclasses import asdict, dataclass
from typing import Any

import httpx

from miles_sim.bench.beside import Miles
from miles_sim.bench.load import BenchError
from miles_sim.bench.miles_side import Engine, agent, rate
from miles_sim.rollout.generate import GenerateInput, generate
from miles_sim.rollout.sample import Sample
from miles_sim.rollout.session.server import SessionServer
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ByteTokenizer
from miles_sim.transport import LocalNetwork

LEAVES = 2


@dataclass(frozen=True)
class RolloutBench:
    """Five generations and two leaves each, under the same agent and an engine that does not think.

    Ours runs in one process without a socket; miles' as it comes, its session server and the engine on loopback.
    """

    rollouts_per_second: float
    ratio_miles: float | None = None
    """Ours / miles'; None where it was not measured, or has no tree sessions."""

    def document(self) -> dict[str, Any]:
        return asdict(self)


def measure(*, seconds: float, miles: Miles | None) -> RolloutBench:
    """`seconds`: measured for each side."""
    ours = asyncio.run(_ours(seconds))
    theirs = None if miles is None else _theirs(miles, seconds)
    return RolloutBench(round(ours, 1), None if theirs is None else round(ours / theirs, 2))


async def _ours(seconds: float) -> float:
    settings, tokenizer = RolloutSettings(speculative_algorithm="EAGLE"), ByteTokenizer("chatml")
    async with LocalNetwork() as network:
        network.mount("engine", Engine(tokenizer.text_stop_id))
        server = SessionServer(settings, tokenizer, "http://engine", transport=network)
        network.mount("sessions", server.app)
        client = httpx.AsyncClient(transport=network, trust_env=False, verify=False)

        async def play(base_url: str, **_: Any) -> dict[str, Any]:
            await agent(client, base_url)
            return {"reward": 1.0}

        asked = GenerateInput(
            settings=settings,
            sample=Sample(index=1),
            sampling_params={"max_new_tokens": 64},
            agent=play,
            session_url="http://sessions",
            client=client,
        )

        async def one() -> None:
            samples = (await generate(asked)).as_list
            if len(samples) != LEAVES:
                raise BenchError(f"rollout: {len(samples)} samples, {LEAVES} are due")

        found = await rate(one, seconds=seconds)
        await server.aclose()
        return found


def _theirs(miles: Miles, seconds: float) -> float | None:
    tokenizer = ByteTokenizer("chatml")
    with tempfile.TemporaryDirectory() as folder:
        job = {
            "session": "v2",
            "tito": tokenizer.family.miles_tito,
            "inputs": [{"index": 1}],
            "max_seq_len": None,
            "speculative_algorithm": "EAGLE",
            "routing_replay": False,
            "routed_experts_layers": 1,
            "routed_experts_topk": 1,
            "batch": {"global_batch_size": None, "dp_size": 1, "normalize": "none", "rewards": "rollout"},
        }
        found: float | None = miles.measured(
            "rollout",
            tokenizer=str(tokenizer.save(folder)),
            stop=tokenizer.text_stop_id,
            seconds=seconds,
            job=job,
        )
        return found
