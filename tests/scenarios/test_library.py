from pathlib import Path

import pytest

from miles_sim import scenarios
from miles_sim.agent.plan import Crash, walk
from miles_sim.document import DocumentError
from miles_sim.scenarios.compile import engine_settings
from miles_sim.scenarios.library import FOLDER

PROMISED = {
    "linear",
    "tools",
    "compaction-summary",
    "compaction-tail",
    "subagent-fresh",
    "subagent-fork-before",
    "subagent-fork-after",
    "subagent-nested",
    "subagents-parallel",
    "retry-middle",
    "retry-first",
    "truncated",
    "aborted",
    "crash-after-two",
    "id-zero",
    "id-explicit",
    "id-index-only",
    "id-index-zero",
    "id-neither",
    "one-generation",
    "nothing-generated",
    "two-rollouts",
    "group",
    "max-seq-len-turn",
    "max-seq-len-mid-turn",
    "speculative-off",
    "speculative-old-keys",
    "delimiter-trim",
    "delimiter-tools",
    "twins",
}


def test_the_promised_scenarios_are_there() -> None:
    assert set(scenarios.names()) >= PROMISED


@pytest.mark.parametrize("name", scenarios.names())
def test_a_scenario_loads_and_compiles_under_its_file_name(name: str) -> None:
    scenario = scenarios.load(name)
    assert scenario.name == name
    asks = [key for key, step in walk(scenario.plan.steps) if step.do in ("say", "tool", "compact", "retry")]
    assert len(asks) <= 8
    spoiled = len(scenario.rollouts) if scenario.faults else 0  # a reply that a fault changes has a rule of its own
    assert len(engine_settings(scenario).rules) <= len(asks) * (1 + spoiled)


def test_titles_tell_scenarios_apart() -> None:
    titles = [scenarios.load(name).title for name in scenarios.names()]
    assert len(set(titles)) == len(titles)


def test_linear_scenarios_are_served_by_both_session_versions() -> None:
    for name in ("linear", "tools", "retry-first", "retry-middle", "truncated", "aborted", "two-rollouts"):
        assert scenarios.load(name).sessions == ("v1", "v2")


def test_an_unknown_name_lists_what_is_near() -> None:
    with pytest.raises(
        scenarios.UnknownScenarioError, match=r"'subagent-frseh' is not built in; near: .*subagent-fresh"
    ):
        scenarios.load("subagent-frseh")
    with pytest.raises(scenarios.UnknownScenarioError, match=r"`miles-sim scenarios` lists the \d+ that are"):
        scenarios.resolve("zzzzzz")


def test_resolve_takes_names_and_files(tmp_path: Path) -> None:
    assert scenarios.resolve("linear") == scenarios.resolve(str(FOLDER / "linear.yaml"))
    with pytest.raises(DocumentError, match=r"nowhere\.yaml: cannot be read"):
        scenarios.resolve(str(tmp_path / "nowhere.yaml"))


def test_v1_is_refused_for_what_is_no_line(tmp_path: Path) -> None:
    path = tmp_path / "tree.yaml"
    path.write_text("name: tree\ntitle: t\nsessions: [v1]\nplan:\n  steps: [{do: say}, {do: compact}]\n")
    with pytest.raises(DocumentError, match="v1 serves linear plans only, and step '2' is a compact"):
        scenarios.load_file(path)


def test_a_fault_is_named_with_file_line_and_place(tmp_path: Path) -> None:
    path = tmp_path / "faulty.yaml"
    path.write_text(
        "name: faulty\ntitle: t\nplan:\n  steps:\n    - {do: say}\n    - do: say\n      reply:\n        tokens: many\n"
    )
    with pytest.raises(DocumentError) as caught:
        scenarios.load_file(path)
    assert str(caught.value).startswith(f"{path}: line 8: plan.steps[1].reply.tokens: input should be a valid integer")
    assert "\n" not in str(caught.value)


def test_a_crash_is_planned_where_its_name_says_so() -> None:
    for name in scenarios.names():
        crashes = any(isinstance(step, Crash) for _, step in walk(scenarios.load(name).plan.steps))
        assert crashes == name.startswith("crash-"), name
