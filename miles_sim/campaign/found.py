"""The violations of a campaign as scenario files: each can be played again, the telling ones shrunk."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from miles_sim.campaign.settings import CampaignSettings
from miles_sim.campaign.shrink import shrink
from miles_sim.campaign.unit import Broken, Unit, UnitPlayer
from miles_sim.scenarios.model import Scenario, SessionVersion
from miles_sim.scenarios.written import scenario_yaml


@dataclass(frozen=True)
class Saved:
    """One violated contract of one scenario."""

    unit: int
    contract: str
    message: str
    path: Path
    repro: str
    plays: int | None
    """Plays that shrinking took; None: it is as it was drawn."""


def saved(
    settings: CampaignSettings,
    units: Iterator[Unit],
    folder: Path,
    *,
    shrunk: int,
    options: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> list[Saved]:
    """Write every violated scenario to `folder`. The first `shrunk` different violations are shrunk.

    Two are alike that violate one contract with one message under the same kinds of fault. `options`: the command
    line's words for the target.
    """
    found: list[Saved] = []
    known: set[tuple[str, str, tuple[str, ...]]] = set()
    with UnitPlayer(settings) as player:
        for unit in units:
            for broken in unit.broken:
                kind = (broken.contract, broken.message, tuple(unit.fired))
                small = kind not in known and len(known) < shrunk and bool(unit.session)
                known |= {kind} if small else set()
                if progress is not None:
                    progress(f"{broken.contract} in scenario {unit.number}")
                found.append(_save(player, unit, broken, folder, small, options))
    return found


def _save(player: UnitPlayer, unit: Unit, broken: Broken, folder: Path, small: bool, options: Sequence[str]) -> Saved:
    scenario, plays = player.scenario(unit.number), None
    if small:
        session: SessionVersion = unit.session  # type: ignore[assignment]
        result = shrink(scenario, lambda one: violates(player, one, session, broken.contract))
        scenario, plays = result.scenario, result.plays
    area = broken.contract.replace("/", "-")
    path = folder / f"{unit.number:07d}-{area}.yaml"
    repro = shlex.join(["miles-sim", "verify", *options, "--scenario", str(path), "--contract", broken.contract])
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(scenario_yaml(scenario, comment=f"Violates {broken.contract}: {broken.message}\n{repro}"), "utf-8")
    return Saved(unit.number, broken.contract, broken.message, path, repro, plays)


def violates(player: UnitPlayer, scenario: Scenario, session: SessionVersion, contract: str) -> bool:
    """`contract` is violated when `scenario` is played under `session`; one that it no longer has violates nothing."""
    if session not in scenario.sessions:
        return False
    _, judgements = player.judged(scenario, session)
    return any(judgement.violations for judgement in judgements if judgement.rule.id == contract)
