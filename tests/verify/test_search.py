"""The search finds planted defects and shrinks them, finds nothing where nothing is wrong, and can be repeated."""

from collections.abc import Callable
from typing import Any

import pytest

from miles_sim.agent.plan import walk
from miles_sim.cli.choices import TargetChoice, chosen_rules
from miles_sim.rollout import assembly, selection
from miles_sim.rollout.sample import Status
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.verify.pack import load_pack, select
from miles_sim.verify.search import Outcome, search


def _searched(*patterns: str, examples: int = 60, **more: Any) -> Outcome:
    return search(TargetChoice().opened, chosen_rules(None, patterns), examples=examples, **more)


def _all_trained(m: pytest.MonkeyPatch) -> None:
    joined = assembly._joined

    def changed(*given: Any) -> Any:
        sample = joined(*given)
        sample.loss_mask = [1] * sample.response_length
        return sample

    m.setattr(assembly, "_joined", changed)


def _trained_twice(m: pytest.MonkeyPatch) -> None:
    m.setitem(selection.POSTPROCESSORS, "default", lambda samples, metadata: samples)


@pytest.mark.parametrize(
    ("plant", "contract", "steps"),
    [
        (_all_trained, "tokens/observation-masked", ["say", "say"]),
        (_trained_twice, "tokens/trainable-exactly-once", ["say", "say", "subagent", "say"]),
    ],
)
def test_a_planted_defect_is_found_and_shrunk_to_its_bones(
    plant: Callable[[pytest.MonkeyPatch], None], contract: str, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    (found,) = _searched(contract, examples=300).found
    assert found.contract == contract
    assert found.steady
    assert found.results[0].contract == contract
    assert len(list(walk(found.scenario.plan.steps))) <= len(steps)
    assert len(found.scenario.rollouts) == 1
    assert found.scenario.max_seq_len is None
    assert found.scenario.engine == type(found.scenario.engine)()


def test_the_same_seed_finds_the_same_and_nothing_comes_of_a_right_implementation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _searched("identity/*", examples=10).found == ()
    _all_trained(monkeypatch)
    first, second = (_searched("tokens/observation-masked", seed=3) for _ in range(2))
    assert first.found[0].scenario == second.found[0].scenario
    assert (first.drawn, first.played) == (second.drawn, second.played)


def test_several_contracts_are_found_one_after_the_other_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _all_trained(monkeypatch)
    monkeypatch.setattr("miles_sim.rollout.sample.status_of", lambda reason: Status.FAILED)
    outcome = _searched("tokens/observation-masked", "status/mapped", most=3, examples=20)
    assert {found.contract for found in outcome.found} == {"tokens/observation-masked", "status/mapped"}
    assert outcome.drawn <= 20


def test_a_target_without_trees_is_asked_linear_plans_alone() -> None:
    class Linear(ReferenceTarget):
        async def describe(self) -> Any:
            info = await super().describe()
            return {**info, "capabilities": [name for name in info["capabilities"] if name != "session.v2"]}

        async def play(self, job: Any, agent: Any) -> Any:
            assert job["session"] == "v1"
            return await super().play(job, agent)

    class Opened:
        async def __aenter__(self) -> Any:
            return Linear(), None

        async def __aexit__(self, *raised: object) -> None:
            return None

    outcome = search(Opened, select(load_pack(), ["identity/*"]), examples=5)
    assert (outcome.found, outcome.drawn) == ((), 5)
