"""A target that dies, hangs or raises in one play: a finding, and the run goes on; several workers, the same bytes."""

import sys
from pathlib import Path

import pytest

from miles_sim.scenarios import library
from miles_sim.scenarios.model import RolloutInput, Scenario
from miles_sim.targets.base import TargetError
from miles_sim.targets.pool import TargetPool
from miles_sim.targets.remote import RemoteTarget
from miles_sim.verify.pack import load_pack, select
from miles_sim.verify.report import Report, Verdict
from miles_sim.verify.run import verify
from miles_sim.verify.survival import play_ends

MORTAL = Path(__file__).parents[1] / "targets" / "adapters" / "mortal.py"
RULES = load_pack()


def scenario(name: str, index: int) -> Scenario:
    made = library.load("one-generation").model_copy(update={"rollouts": (RolloutInput(index=index),), "name": name})
    return Scenario.model_validate(made.model_dump())


def target() -> RemoteTarget:
    return RemoteTarget(sys.executable, adapter=MORTAL, play_timeout=1.5)


async def report(*scenarios: Scenario, pattern: str = "*", workers: int = 1) -> Report:
    members = [target() for _ in range(workers)]
    opened = TargetPool(members) if workers > 1 else members[0]
    try:
        cases = [(scenario, "v1") for scenario in scenarios]
        done = await verify(cases, opened, select(RULES, [pattern]), complete=False)  # type: ignore[arg-type]
    finally:
        await opened.close()
    return done.report


@pytest.mark.parametrize(
    ("index", "found"),
    [
        (90, "play: died"),
        (91, "play: no answer within 1.5 s"),
        (92, "play: LookupError: port http://sessions/sessions is gone"),
    ],
)
async def test_a_play_without_an_end_is_a_finding_and_the_next_one_goes_on(index: int, found: str) -> None:
    made = await report(scenario("a", index), scenario("b", 7))
    (broken,) = (result for result in made.results if result.verdict is Verdict.VIOLATION)
    assert (broken.scenario, broken.contract, broken.findings[0].found) == ("a/v1", "session/play-ends", found)
    others = {result.verdict for result in made.results if result.scenario == "a/v1" and result is not broken}
    assert others == {Verdict.BLOCKED}
    assert any(result.verdict is Verdict.PASS for result in made.results if result.scenario == "b/v1")
    assert not made.holds


async def test_it_is_told_even_where_another_contract_alone_was_asked_for() -> None:
    made = await report(scenario("a", 92), pattern="status/*")
    assert [result.contract for result in made.results if result.verdict is Verdict.VIOLATION] == [play_ends.id]
    assert play_ends.id in {contract.id for contract in made.contracts}


async def test_any_number_of_workers_gives_the_same_bytes() -> None:
    scenarios = [scenario(f"s{number}", 90 if number == 1 else number) for number in range(5)]
    one, three = [await report(*scenarios, workers=workers) for workers in (1, 3)]
    assert one.to_json() == three.to_json()
    assert one.summary.violation == 1


async def test_a_target_that_cannot_be_used_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "list.py").write_text(
        MORTAL.read_text().replace("return await super().play(job, agent)", "return []"), encoding="utf-8"
    )
    broken = RemoteTarget(sys.executable, adapter=tmp_path / "list.py")
    try:
        with pytest.raises(TargetError, match="answered list, a mapping is due"):
            await verify([(scenario("a", 7), "v1")], broken, RULES)
    finally:
        await broken.close()


def test_a_pool_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="members: at least one"):
        TargetPool([])
