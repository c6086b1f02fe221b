"""Playing: one scenario against one target, from engine and agent to the case that rules judge."""

import asyncio
import atexit
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from miles_sim.agent.direct import ToolBench, opening, turns
from miles_sim.agent.player import play_plan
from miles_sim.document import DocumentError, read
from miles_sim.engine.engine import Engine
from miles_sim.ledger import Generation, Ledger, Turn
from miles_sim.scenarios.compile import engine_settings, sampling
from miles_sim.scenarios.model import Scenario, SessionVersion
from miles_sim.targets.base import DirectJob, Hooks, Job, PlayError, Target, TargetError
from miles_sim.targets.observation import Observation
from miles_sim.tokenizer import FAMILIES, built_in
from miles_sim.transport import LocalNetwork, serve
from miles_sim.verify.abandoned import KEY, Abandoned
from miles_sim.verify.passage import passage
from miles_sim.verify.rule import Case
from miles_sim.verify.struck import Faults
from miles_sim.verify.tap import App, Tap

ENGINE_HOST = "engine"


async def play(
    scenario: Scenario,
    target: Target,
    *,
    session: SessionVersion,
    network: LocalNetwork | None = None,
    timeout: float = 60.0,
) -> Case:
    """Play `scenario` on `target` under one session version.

    With `network` the engine is a host of this process (for a target that shares it); without, it listens on
    loopback. A scenario that is `replayed` is played twice, and the case has the `second` play. Raises `PlayError`
    where the target dies, raises, or hangs for `timeout` seconds, `TargetError` where it answers nonsense.
    """
    case = await _once(scenario, target, session, network, timeout, nullcontext())
    if scenario.replayed is None:
        return case
    turn = asyncio.Lock() if scenario.replayed == "one_by_one" else nullcontext()
    return replace(case, second=await _once(scenario, target, session, network, timeout, turn))


async def _once(
    scenario: Scenario,
    target: Target,
    session: SessionVersion,
    network: LocalNetwork | None,
    timeout: float,
    turn: AbstractAsyncContextManager[None],
) -> Case:
    """One play. `turn`: each agent runs within it."""
    info = await target.describe()
    engine = Engine(engine_settings(scenario, session), seed=scenario.seed)
    tap = Tap(engine.app, held=[KEY] if scenario.abandoned else ())
    journals: list[list[Turn]] = [[] for _ in scenario.rollouts]
    benches = [ToolBench(scenario.plan, scenario.seed) for _ in scenario.rollouts]
    async with AsyncExitStack() as stack:
        engine_url = await stack.enter_async_context(_reachable(tap, network))
        faults = Faults(scenario, session, {} if network is None else network.cancellers)
        driver = "faults.driver" in info["capabilities"]
        way = await stack.enter_async_context(
            passage(engine_url, network, faults if scenario.faults else None, driver=driver)
        )
        client = way.client
        abandoned = Abandoned(scenario, client, tap)

        async def agent(
            rollout: int, base_url: str, request_kwargs: Mapping[str, Any], metadata: Mapping[str, Any]
        ) -> dict[str, Any] | None:
            if session == "direct":
                return await benches[rollout].call(request_kwargs)
            faults.told(rollout, base_url)
            async with turn:
                returned = await play_plan(
                    scenario.plan,
                    client=client,
                    base_url=base_url,
                    request_kwargs=request_kwargs,
                    rollout=rollout,
                    seed=scenario.seed,
                    model=scenario.engine.model,
                    journal=journals[rollout],
                    hook=faults.hook(rollout),
                )
            if scenario.abandoned:
                await abandoned.leave(rollout, base_url, request_kwargs)
            return returned

        job = way.told(_job(scenario, session, engine_url))
        try:
            bounded = getattr(target, "bounds_plays", False)
            document = await asyncio.wait_for(target.play(job, agent), None if bounded else timeout)
        except asyncio.TimeoutError:
            late = f"took more than {timeout:g} s"
            raise PlayError(f"{info['name']}: {scenario.name}/{session} {late}", late) from None
        except TargetError:
            raise
        except Exception as error:  # an adapter of anyone's
            what = f"play: {type(error).__name__}: {error}"
            raise PlayError(f"{info['name']}: {scenario.name}/{session}: {what}", what) from error
        requests_open = engine.requests_open + tap.holding
        tap.release()
        for left in await abandoned.turns():
            journals[left.rollout].append(left)
    if session == "direct":
        unheard = faults.unheard()
        heard = [generation for generation in engine.generations if generation.id not in unheard]
        journals = [list(turns(scenario.plan, *asked)) for asked in _by_rollout(scenario, heard, tap)]
    return Case(
        scenario=scenario,
        session=session,
        ledger=faults.on(_ledger(engine.generations, journals)),
        observation=_observation(document, scenario, session, info["name"], requests_open),
        capabilities=frozenset(info["capabilities"]) | ({"python-O"} if info["optimize"] else set()),
        exchanges=tap.by_id,
    )


@asynccontextmanager
async def _reachable(app: App, network: LocalNetwork | None) -> AsyncIterator[str]:
    if network is None:
        async with serve(app) as url:
            yield url
        return
    network.mount(ENGINE_HOST, app)
    try:
        yield f"http://{ENGINE_HOST}"
    finally:
        network.unmount(ENGINE_HOST)


def _job(scenario: Scenario, session: SessionVersion, engine_url: str) -> Job:
    family = FAMILIES[scenario.engine.tokenizer]
    speculative, experts = scenario.engine.speculative, scenario.engine.experts
    job = Job(
        session=session,
        engine_url=engine_url,
        tokenizer=family.name,
        tokenizer_folder=str(_tokenizer_folder(family.name)),
        tito=family.miles_tito,
        inputs=[rollout.model_dump(mode="json") for rollout in scenario.rollouts],
        sampling=[sampling(scenario, number) for number in range(len(scenario.rollouts))],
        max_seq_len=scenario.max_seq_len,
        speculative_algorithm=speculative.algorithm if speculative else None,
        routing_replay=scenario.routing_replay,
        routed_experts_layers=experts.layers if experts else 1,
        routed_experts_topk=experts.topk if experts else 1,
        batch=scenario.batch.model_dump(mode="json"),
        hooks=Hooks(picker=scenario.hooks.picker, postprocessor=scenario.hooks.postprocessor),
        message_matcher=scenario.matcher,
        max_nodes=scenario.max_nodes,
        lora=scenario.lora,
        garble=scenario.garble,
    )
    if session == "direct":
        job["direct"] = DirectJob(
            tools=list(scenario.plan.tools), parser=family.tool_format, max_turns=max(1, len(scenario.plan.steps))
        )
        for values in job["inputs"]:
            values["prompt"] = opening(scenario.plan, scenario.seed)
    return job


@lru_cache
def _tokenizer_folder(family: str) -> Path:
    """The family as a Hugging Face folder; written once a process, gone with it."""
    folder = Path(tempfile.mkdtemp(prefix="miles-sim-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return built_in(family).save(folder)


def _by_rollout(scenario: Scenario, generations: list[Generation], tap: Tap) -> Iterator[tuple[int, list[Generation]]]:
    """Number and generations of each rollout of a direct play, told apart by the sampling seed they were asked with."""
    exchanges = tap.by_id
    for number in range(len(scenario.rollouts)):
        own = sampling(scenario, number)["sampling_seed"]
        yield number, [g for g in generations if g.id in exchanges and exchanges[g.id].sampling_seed == own]


def _ledger(generations: list[Generation], journals: list[list[Turn]]) -> Ledger:
    """Generations in plan order; what no turn was answered with comes last, by id."""
    turns = tuple(turn for journal in journals for turn in journal)
    place = {turn.response_id: number for number, turn in enumerate(turns)}
    ordered = sorted(generations, key=lambda g: (place.get(g.id, len(place)), g.id))
    return Ledger(generations=tuple(ordered), turns=turns)


def _observation(document: Any, scenario: Scenario, session: str, target: str, requests_open: int) -> Observation:
    try:
        observation = read(Observation, document, name=f"{target}: observation of {scenario.name}/{session}")
    except DocumentError as error:
        raise TargetError(str(error)) from None
    if len(observation.rollouts) != len(scenario.rollouts):
        raise TargetError(
            f"{target}: observation of {scenario.name}/{session}: {len(observation.rollouts)} rollouts, "
            f"{len(scenario.rollouts)} were asked"
        )
    if observation.requests_open is None:
        observation = observation.model_copy(update={"requests_open": requests_open})
    return observation
