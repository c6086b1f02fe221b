"""The direct path of miles-sim's own implementation under contract: no session server, tools in the driver."""

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Any

import httpx

from miles_sim.plain_http import PlainClient
from miles_sim.rollout.direct.generate import DirectInput, generate_direct
from miles_sim.rollout.direct.tools import TaggedJsonParser, Tools
from miles_sim.rollout.sample import Sample
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.targets.base import AgentFunction, Job, TargetError
from miles_sim.targets.ended import Ending
from miles_sim.targets.views import rollout_view, sample_view
from miles_sim.tokenizer import ByteTokenizer

PARSERS = {"qwen25": TaggedJsonParser}
"""SGLang's name of a tool-call format to the parser of ours that reads it."""


async def play_direct(
    job: Job,
    agent: AgentFunction,
    settings: RolloutSettings,
    tokenizer: ByteTokenizer,
    way: httpx.AsyncBaseTransport,
    cancellers: MutableMapping[int, Callable[[], object]],
) -> list[tuple[dict[str, Any], Any]]:
    """Of each rollout its view, and its sample or None; what ends it goes into `cancellers`.

    TargetError for a tool-call format that has no parser here.
    """
    parser = job["direct"]["parser"]
    if job["direct"]["tools"] and parser not in PARSERS:
        raise TargetError(f"direct: no parser for tool calls of {parser!r}; there are {sorted(PARSERS)}")
    client = PlainClient(way)
    endings = [Ending[Sample]() for _ in job["inputs"]]
    cancellers.update((number, ending.cancel) for number, ending in enumerate(endings))
    plays = (_one(job, number, agent, settings, tokenizer, client, ending) for number, ending in enumerate(endings))
    return await asyncio.gather(*plays)


async def _one(
    job: Job,
    number: int,
    agent: AgentFunction,
    settings: RolloutSettings,
    tokenizer: ByteTokenizer,
    client: httpx.AsyncClient,
    ending: Ending[Sample],
) -> tuple[dict[str, Any], Any]:
    ran: list[str] = []

    async def execute(name: str, arguments: dict[str, Any]) -> str:
        ran.append(name)
        answer = await agent(number, "", {"name": name, "arguments": arguments}, {})
        return str((answer or {})["content"])

    direct = job["direct"]
    parser = PARSERS.get(direct["parser"], TaggedJsonParser)()
    tools = Tools(specs=direct["tools"], parser=parser, execute=execute, max_turns=direct["max_turns"])
    sample = Sample(**job["inputs"][number])
    before = sample_view(sample)
    asked = DirectInput(
        settings=settings,
        sample=sample,
        sampling_params=job["sampling"][number],
        tokenizer=tokenizer,
        engine_url=job["engine_url"],
        client=client,
        tools=tools if direct["tools"] else None,
    )
    returned, error = await ending.outcome(generate_direct(asked))
    return rollout_view(before, sample, returned, agent_ran=bool(ran), error=error), returned
