"""Fixtures and markers for contract tests of a user's own code. Loads in every pytest run: nothing heavy up here.

@pytest.mark.miles_scenario("subagent-*", sample_picker=my_picker)
@contracts("selection/*", "tokens/*")
def test_my_picker(contract, miles_case):
    contract.check_on(miles_case)
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from miles_sim.engine.engine import Engine
    from miles_sim.engine.settings import EngineSettings
    from miles_sim.scenarios.model import Scenario, SessionVersion
    from miles_sim.targets.base import Target
    from miles_sim.transport import LocalNetwork
    from miles_sim.verify.rule import Case, Rule, Violation


def contracts(*globs: str, packs: "Sequence[str | Path]" = ()) -> pytest.MarkDecorator:
    """Run the test once for each contract that one of `globs` matches (all without one), as `contract`.

    `packs`: folders of your own contracts, beside the built-in pack.
    """
    return pytest.mark.miles_contracts(*globs, packs=packs)


def target(name: str, **options: Any) -> Any:
    """A `miles_target` fixture, for a conftest: `miles_target = target("miles", python="venv/bin/python")`.

    `name` and `options` are those of `miles_sim.targets.catalog.open_target`.
    """

    @pytest.fixture(scope="session", name="miles_target")
    def opened() -> "Iterator[Target]":
        from miles_sim.targets.catalog import open_target

        found = open_target(name, **options)
        yield found
        _in_thread(found.close)

    return opened


@dataclass(frozen=True)
class Contract:
    """What a test gets as `contract`."""

    rule: "Rule"

    def check_on(self, case: "Case") -> None:
        """Fail the test where the contract is violated, or has nothing to judge because a rollout broke; skip it, with
        the reason, where there is nothing to judge otherwise."""
        from miles_sim.verify.judge import judge
        from miles_sim.verify.report import Verdict

        if self.rule.scope == "scenario":
            pytest.skip(
                f"{self.rule.id}: compares several plays of a scenario, as `miles-sim verify` does; this is one"
            )
        judged = {
            judgement.rule.id: judgement
            for judgement in judge(case, [self.rule, *(rule for rule in _whole() if rule.id != self.rule.id)])
        }
        own = judged[self.rule.id]
        if own.verdict is Verdict.PASS:
            return
        for judgement in (own, *judged.values()):
            if judgement.verdict is Verdict.VIOLATION:
                pytest.fail(_failure(judgement.rule, case, judgement.violations), pytrace=False)
        pytest.skip(f"{self.rule.id} on {case.name}: {own.reason}")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_CASES] = {}
    config.addinivalue_line(
        "markers",
        "miles_scenario(*scenarios, session=None, **settings): what `miles_case` plays, one test a case: names, globs, "
        "YAML files or Scenario values; settings are fields of miles_sim.rollout.settings.RolloutSettings, "
        "sample_picker among them",
    )
    config.addinivalue_line("markers", "miles_contracts(*globs, packs=()): see miles_sim.pytest_plugin.contracts")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a case and a contract, where the markers ask for them."""
    wanted = {"miles_case": ("miles_scenario", _cases), "contract": ("miles_contracts", _contracts)}
    for argument, (name, parameters) in wanted.items():
        marker = metafunc.definition.get_closest_marker(name)
        if marker is None:
            continue
        where = metafunc.definition.nodeid
        if argument not in metafunc.fixturenames:
            raise pytest.Collector.CollectError(f"{where}: {name} needs an argument named {argument!r}")
        try:
            metafunc.parametrize(argument, parameters(marker), indirect=argument == "miles_case")
        except ValueError as error:
            raise pytest.Collector.CollectError(f"{where}: {error}") from None


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


miles_target = target("reference")
"""The implementation under contract: miles-sim's own, unless a conftest says otherwise."""


@pytest.fixture
def miles_case(request: pytest.FixtureRequest, miles_target: "Target") -> "Case":
    """What came of playing the scenario on `miles_target`; played once for all contracts of one test function."""
    played = getattr(request, "param", None)
    if played is None:
        raise pytest.UsageError(f"{request.node.nodeid}: miles_case needs @pytest.mark.miles_scenario('name')")
    cases = request.config.stash[_CASES]
    key = (request.function, id(played.scenario), played.session, miles_target)
    if key not in cases:
        cases[key] = _in_thread(_play, played, miles_target)
    return cases[key]


_CASES = pytest.StashKey[dict[Any, "Case"]]()


@dataclass(frozen=True)
class _ToPlay:
    scenario: "Scenario"
    session: "SessionVersion"
    settings: dict[str, Any]


def _cases(marker: pytest.Mark) -> list[Any]:
    from miles_sim.cli import choices
    from miles_sim.rollout.settings import RolloutSettings
    from miles_sim.scenarios.model import Scenario

    settings = dict(marker.kwargs)
    session = settings.pop("session", None)
    known = [each.name for each in fields(RolloutSettings) if each.name != "session"]
    if unknown := [name for name in settings if name not in known]:
        raise ValueError(f"miles_scenario: {unknown[0]!r} is not one of session, {', '.join(known)}")
    named = [str(given) for given in marker.args if not isinstance(given, Scenario)]
    found = choices.chosen_cases(named) if named or not marker.args else []
    found += [(s, version) for s in marker.args if isinstance(s, Scenario) for version in s.sessions]
    chosen = [_ToPlay(s, version, settings) for s, version in found if session in (None, version)]
    if not chosen:
        raise ValueError(f"session: {session!r} serves none of {list(marker.args)}")
    return [pytest.param(case, id=f"{case.scenario.name}/{case.session}") for case in chosen]


def _contracts(marker: pytest.Mark) -> list[Any]:
    from miles_sim.cli import choices

    folders = [Path(folder) for folder in marker.kwargs.get("packs", ())]
    return [pytest.param(Contract(rule), id=rule.id) for rule in choices.chosen_rules(folders, marker.args)]


async def _play(asked: _ToPlay, target: "Target") -> "Case":
    from miles_sim.targets.reference import ReferenceTarget
    from miles_sim.transport import LocalNetwork
    from miles_sim.verify.play import play

    if not isinstance(target, ReferenceTarget):
        if asked.settings:
            raise pytest.UsageError(
                f"miles_scenario: {sorted(asked.settings)}: only the reference target takes settings"
            )
        return await play(asked.scenario, target, session=asked.session)
    network = LocalNetwork()
    own = ReferenceTarget(network, **asked.settings)
    try:
        return await play(asked.scenario, own, session=asked.session, network=network)
    finally:
        await own.close()
        await network.aclose()


@cache
def _whole() -> "tuple[Rule, ...]":
    """The contract that every rollout ends in samples: silence on a broken one proves nothing."""
    from miles_sim.cli import choices

    return choices.chosen_rules([], ("session/ends-in-samples",))


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
