"""Fixtures and markers for contract tests of a user's own code. Loads in every pytest run: nothing heavy up here.

@pytest.mark.miles_scenario("subagent-fork-after", sample_picker=my_picker)
@contracts("selection/*")
def test_my_picker(contract, miles_case):
    contract.check_on(miles_case)
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from miles_sim.engine.engine import Engine
    from miles_sim.engine.settings import EngineSettings
    from miles_sim.targets.base import Target
    from miles_sim.transport import LocalNetwork
    from miles_sim.verify.rule import Case, Rule, Violation


def contracts(*globs: str) -> pytest.MarkDecorator:
    """Run the test once for each built-in contract that one of `globs` matches, handed in as `contract`."""
    return pytest.mark.miles_contracts(*globs)


@dataclass(frozen=True)
class Contract:
    """What a test gets as `contract`."""

    rule: "Rule"

    def check_on(self, case: "Case") -> None:
        """Fail the test where the contract is violated; skip it, with the reason, where there is nothing to judge."""
        from miles_sim.verify.judge import judge
        from miles_sim.verify.report import Verdict

        (judgement,) = judge(case, [self.rule])
        if judgement.verdict is Verdict.VIOLATION:
            pytest.fail(_failure(self.rule, case, judgement.violations), pytrace=False)
        if judgement.verdict is not Verdict.PASS:
            pytest.skip(f"{self.rule.id} on {case.name}: {judgement.reason}")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "miles_scenario(scenario, *, session=None, **settings): what `miles_case` plays: a name, a YAML file or a "
        "Scenario; settings are fields of miles_sim.rollout.settings.RolloutSettings, sample_picker among them",
    )
    config.addinivalue_line("markers", "miles_contracts(*globs): see miles_sim.pytest_plugin.contracts")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("miles_contracts")
    if marker is None:
        return
    if "contract" not in metafunc.fixturenames:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: contracts(…) needs an argument named 'contract'")
    from miles_sim.verify.pack import PackError, load_pack, select

    try:
        chosen = select(load_pack(), marker.args)
    except PackError as error:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: {error}") from None
    metafunc.parametrize("contract", [pytest.param(Contract(rule), id=rule.id) for rule in chosen])


@pytest.fixture
def miles_network() -> "LocalNetwork":
    """An httpx transport that reaches engines and apps of this process by host name, without a socket."""
    from miles_sim.transport import LocalNetwork

    return LocalNetwork()


@pytest.fixture
def miles_engine(miles_network: "LocalNetwork") -> "Callable[..., Engine]":
    """Makes simulated engines: `miles_engine(settings, seed=0, host="engine")` answers at `http://engine`."""
    from miles_sim.engine.engine import Engine
    from miles_sim.engine.settings import EngineSettings

    def make(settings: "EngineSettings | None" = None, *, seed: int = 0, host: str = "engine") -> "Engine":
        engine = Engine(settings or EngineSettings(), seed=seed)
        miles_network.mount(host, engine.app)
        return engine

    return make


@pytest.fixture(scope="session")
def miles_target() -> "Target | None":
    """The implementation under contract. Override it with your own; None: miles-sim's own, one a case."""
    return None


@pytest.fixture
def miles_case(request: pytest.FixtureRequest, miles_target: "Target | None") -> "Case":
    """The case of the scenario named by the `miles_scenario` marker, played on `miles_target`."""
    marker = request.node.get_closest_marker("miles_scenario")
    if marker is None or len(marker.args) != 1:
        raise pytest.UsageError(f"{request.node.nodeid}: miles_case needs @pytest.mark.miles_scenario('name')")
    settings = dict(marker.kwargs)
    return _in_thread(_played, marker.args[0], settings.pop("session", None), settings, miles_target)


async def _played(named: Any, session: str | None, settings: dict[str, Any], target: "Target | None") -> "Case":
    from miles_sim import choices
    from miles_sim.scenarios.model import Scenario
    from miles_sim.targets.reference import ReferenceTarget
    from miles_sim.transport import LocalNetwork
    from miles_sim.verify.play import play

    scenario = named if isinstance(named, Scenario) else choices.chosen_scenario(str(named))
    version = choices.chosen_session(scenario, session)
    if target is not None:
        if settings:
            raise pytest.UsageError(f"miles_scenario: {sorted(settings)} are settings of miles-sim's own target")
        return await play(scenario, target, session=version)
    network = LocalNetwork()
    own = ReferenceTarget(network, **settings)
    try:
        return await play(scenario, own, session=version, network=network)
    finally:
        await own.close()
        await network.aclose()


def _in_thread(function: "Callable[..., Coroutine[Any, Any, Any]]", *arguments: Any) -> Any:
    """The result of `function` on an event loop of its own, whatever loop the test has."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(lambda: asyncio.run(function(*arguments))).result()


def _failure(rule: "Rule", case: "Case", violations: "tuple[Violation, ...]") -> str:
    from miles_sim.report.case import case_text

    lines = [f"{rule.id} ({rule.severity.value}): {rule.statement}"]
    for violation in violations:
        lines += [f"  {violation.place}: {violation.message}"]
        lines += [f"    expected  {violation.expected}", f"    found     {violation.found}"]
    return "\n".join([*lines, "", case_text(case)])
