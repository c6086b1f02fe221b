"""A small run to make pages of: real plays, and a rule that finds the same fault in each sample that was trained."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from miles_sim.scenarios import library
from miles_sim.targets.observation import SampleView
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.transport import LocalNetwork
from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.pack import load_pack
from miles_sim.verify.rule import RolloutCase
from miles_sim.verify.run import Run, select_cases, verify

SCENARIOS = ("retry-middle", "subagent-fork-after", "tools", "crash-at-once")


@rule("house/no-tools", level="meaning", severity="should", reason="r", source="this test")
def no_tools(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """No reply <b>calls</b> a tool."""
    if case.scenario.name == "tools":
        see.that(False, "a tool & is called", expected="<no call>", found="a call", tokens=range(3, 6))


def run() -> Run:
    """Four scenarios, the built-in pack, and the rule above."""

    async def played() -> Run:
        network = LocalNetwork()
        target = ReferenceTarget(network)
        try:
            cases = select_cases([library.load(name) for name in SCENARIOS], [])
            return await verify(cases, target, [*load_pack(), no_tools], network=network, complete=False)
        finally:
            await target.close()
            await network.aclose()

    with ThreadPoolExecutor(max_workers=1) as pool:  # a browser's driver has this thread's event loop
        return pool.submit(lambda: asyncio.run(played())).result()
