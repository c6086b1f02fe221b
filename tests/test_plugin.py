"""The pytest plugin, seen from a user's small project."""

import pytest

import miles_sim.targets.reference
import miles_sim.verify.play  # noqa: F401 - numpy loads once a process, and pytester forgets what a run imported

pytest_plugins = ["pytester"]

INI = """
[pytest]
addopts = --strict-markers
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
# An inner run shares its modules with the outer one, which has imported the contract pack.
filterwarnings = ignore::pytest.PytestAssertRewriteWarning
"""
OWN_TARGET = '''
from miles_sim.targets.reference import ReferenceTarget

PLAYED = []


class Own:
    """Someone else's implementation: here, ours by another name."""

    def __init__(self):
        self.inner = ReferenceTarget(None)

    async def describe(self):
        return {**await self.inner.describe(), "name": "own"}

    async def play(self, job, agent):
        PLAYED.append(job["session"])
        return await self.inner.play(job, agent)

    async def close(self):
        await self.inner.close()
        print("closed", len(PLAYED))
'''


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini(INI)
    return pytester


def _run(project: pytest.Pytester, text: str, *words: str) -> pytest.RunResult:
    project.makepyfile(test_own=f"import pytest\nfrom miles_sim.pytest_plugin import contracts, target\n\n{text}")
    return project.runpytest_inprocess("-q", "-p", "no:cacheprovider", *words)


def test_one_test_a_contract_and_a_case(project: pytest.Pytester) -> None:
    result = _run(
        project,
        """
@pytest.mark.miles_scenario("retry-middle", "twins", session="v2")
@contracts("selection/retry-dropped", "selection/order-stable")
def test_it(contract, miles_case):
    contract.check_on(miles_case)
""",
        "--collect-only",
    )
    names = [line for line in result.outlines if "::" in line]
    assert len(names) == 4
    assert all("/v2" in name and "selection/" in name for name in names)


def test_a_picker_that_loses_a_path_fails_by_the_contract_that_says_so(project: pytest.Pytester) -> None:
    result = _run(
        project,
        """
def longest_only(samples, session_metadata):
    return [max(samples, key=lambda sample: len(sample.tokens))]

@pytest.mark.miles_scenario("compaction-summary", sample_picker=longest_only)
@contracts("selection/compaction-kept")
def test_it(contract, miles_case):
    contract.check_on(miles_case)
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["selection/compaction-kept (must): *", "*a path was dropped*", "miles-sim case/1"])


def test_a_picker_that_raises_fails_the_contracts_that_it_leaves_nothing_to_judge(project: pytest.Pytester) -> None:
    result = _run(
        project,
        """
def broken(samples, session_metadata):
    return samples[0].no_such_field

@pytest.mark.miles_scenario("retry-first", session="v2", sample_picker=broken)
@contracts("tokens/trainable-exactly-once")
def test_it(contract, miles_case):
    contract.check_on(miles_case)
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["session/ends-in-samples (must): *", "*no_such_field*"])


def test_a_contract_on_several_plays_of_a_scenario_is_skipped_and_says_so(project: pytest.Pytester) -> None:
    result = _run(
        project,
        """
@pytest.mark.miles_scenario("linear", session="v2")
@contracts("session/v1-v2-parity")
def test_it(contract, miles_case):
    contract.check_on(miles_case)
""",
        "-rs",
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*session/v1-v2-parity: compares several plays of a scenario*"])


def test_scenario_values_of_one_name_are_two(project: pytest.Pytester) -> None:
    result = _run(
        project,
        """
from miles_sim.scenarios import library

ONE = library.load("linear")
OTHER = ONE.model_copy(update={"seed": ONE.seed + 1})

@pytest.mark.miles_scenario(ONE, OTHER, session="v2")
def test_it(miles_case):
    assert miles_case.scenario in (ONE, OTHER)
    ONES.append(miles_case.scenario.seed)

ONES = []

def test_both():
    assert len(set(ONES)) == 2
""",
    )
    result.assert_outcomes(passed=3)


def test_what_a_contract_cannot_judge_is_skipped_with_the_reason(project: pytest.Pytester) -> None:
    result = _run(
        project,
        """
@pytest.mark.miles_scenario("linear", session="v1")
@contracts("selection/compaction-kept")
def test_it(contract, miles_case):
    contract.check_on(miles_case)
""",
        "-rs",
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*selection/compaction-kept on linear/v1: nothing to look at in this scenario"])


def test_a_case_is_there_for_checks_of_ones_own_in_async_tests_too(project: pytest.Pytester) -> None:
    result = _run(
        project,
        """
import asyncio

@pytest.mark.miles_scenario("tools")
async def test_async(miles_case):
    await asyncio.sleep(0)
    assert miles_case.rollouts[0].samples

@pytest.mark.miles_scenario("tools", session="v1")
def test_sync(miles_case):
    assert miles_case.name == "tools/v1"
""",
        "-W",
        "error",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    )
    result.assert_outcomes(passed=3)


def test_a_scenario_value_can_be_played(project: pytest.Pytester) -> None:
    result = _run(
        project,
        """
from miles_sim.scenarios.model import Scenario

OWN = Scenario.model_validate({"name": "own", "title": "Mine", "plan": {"steps": [{"do": "say"}]}})

@pytest.mark.miles_scenario(OWN)
def test_it(miles_case):
    assert miles_case.name == "own/v2"
""",
    )
    result.assert_outcomes(passed=1)


def test_another_target_is_played_once_a_case_and_closed(project: pytest.Pytester) -> None:
    project.makepyfile(own_target=OWN_TARGET)
    project.makeconftest("from miles_sim.pytest_plugin import target\n\nmiles_target = target('own_target:Own')\n")
    project.syspathinsert()
    result = _run(
        project,
        """
@pytest.mark.miles_scenario("tools", session="v2")
@contracts("tokens/*")
def test_it(contract, miles_case):
    import own_target
    assert own_target.PLAYED == ["v2"]
    contract.check_on(miles_case)
""",
        "-s",
    )
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] > 1
    assert "failed" not in outcomes
    result.stdout.fnmatch_lines(["*closed 1*"])


def test_settings_are_refused_where_they_cannot_apply(project: pytest.Pytester) -> None:
    project.makepyfile(own_target=OWN_TARGET)
    project.makeconftest("from miles_sim.pytest_plugin import target\n\nmiles_target = target('own_target:Own')\n")
    project.syspathinsert()
    result = _run(
        project,
        """
@pytest.mark.miles_scenario("tools", session="v2", max_nodes=3)
def test_it(miles_case):
    pass
""",
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*max_nodes*only the reference target takes settings*"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("@contracts('nix/*')\ndef test_it(contract): pass", "*'nix/*' matches none*"),
        ("@contracts('tokens/*')\ndef test_it(): pass", "*needs an argument named 'contract'*"),
        ("@pytest.mark.miles_scenario('nix')\ndef test_it(miles_case): pass", "*'nix'*"),
        ("@pytest.mark.miles_scenario('twins', session='v1')\ndef test_it(miles_case): pass", "*'v1'*"),
        (
            "@pytest.mark.miles_scenario('linear', sample_pickr=len)\ndef test_it(miles_case): pass",
            "*'sample_pickr' is not one of session, identity,*",
        ),
        ("def test_it(miles_case): pass", "*miles_case needs @pytest.mark.miles_scenario*"),
    ],
)
def test_a_marker_that_names_nothing_is_an_error_that_says_what(project: pytest.Pytester, text: str, told: str) -> None:
    result = _run(project, text)
    assert result.ret != 0
    assert "passed" not in result.parseoutcomes()
    both = result.outlines + result.errlines
    pytest.LineMatcher(both).fnmatch_lines([told])


def test_an_engine_answers_in_process(project: pytest.Pytester) -> None:
    result = _run(
        project,
        """
import httpx

async def test_it(miles_engine, miles_network):
    one, two = miles_engine(), miles_engine(seed=1, host="other")
    body = {"model": "sim", "messages": [{"role": "user", "content": "hello"}]}
    async with httpx.AsyncClient(transport=miles_network) as client:
        replies = [await client.post(f"http://{host}/v1/chat/completions", json=body) for host in ("engine", "other")]
    assert [reply.json()["id"] for reply in replies] == [one.generations[0].id, two.generations[0].id]
""",
    )
    result.assert_outcomes(passed=1)
