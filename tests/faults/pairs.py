"""Two kinds of fault in one rollout, many rollouts a play: our own implementation must hold under each pair.

    python -m tests.faults.pairs --session v2 [--share 1/8]     all pairs, or every eighth

The first kind strikes the second question of its rollout, the second one the third, each at the first attempt; kinds
that concern one request of the driver, or the agent's return, strike there. The agent asks again twice.
"""

import argparse
import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from miles_sim.faults.catalogue import kinds
from miles_sim.faults.kind import Kind
from miles_sim.faults.plan import Fault, When, Where
from miles_sim.scenarios.model import Scenario, SessionVersion
from miles_sim.scenarios.single import DIRECT_EDGES, SESSIONS, tools_scenario
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.transport import LocalNetwork
from miles_sim.verify.judge import judge
from miles_sim.verify.pack import load_pack
from miles_sim.verify.play import play
from miles_sim.verify.rule import Case, Rule, Violation

Pair = tuple[Kind, Kind]
PAIRS_A_PLAY = 24


def rules() -> tuple[Rule, ...]:
    """The pack, less the rule that each fault finds something to strike: in a pair one may keep the other from it."""
    return tuple(rule for rule in load_pack() if rule.id != "faults/fired")


def pairs(session: SessionVersion) -> list[Pair]:
    """All pairs of kinds that a session version's plays can be struck by; each kind once with itself."""
    known = [kind for kind in kinds().values() if session != "direct" or kind.edge in DIRECT_EDGES]
    return list(itertools.combinations_with_replacement(known, 2))


def plays(found: Sequence[Pair], session: SessionVersion) -> Iterator[tuple[Scenario, list[Pair]]]:
    """Scenarios that hold them, a pair a rollout and one rollout without; what concerns a whole engine is alone."""
    shared = [pair for pair in found if not any(_whole(kind) for kind in pair)]
    for start in range(0, len(shared), PAIRS_A_PLAY):
        part = shared[start : start + PAIRS_A_PLAY]
        yield scenario(part, session), part
    for pair in (pair for pair in found if any(_whole(kind) for kind in pair)):
        yield scenario([pair], session), [pair]


def _whole(kind: Kind) -> bool:
    return kind.radius == "engine" or kind.layer == "engine"


def scenario(found: Sequence[Pair], session: SessionVersion) -> Scenario:
    return tools_scenario(
        name="pairs",
        title="Two faults in each rollout",
        sessions=(session,),
        rollouts=tuple({"index": number} for number in range(len(found) + 1)),
        retries=0 if session == "direct" else 2,
        faults=tuple(fault for number, pair in enumerate(found) for fault in _faults(pair, number)),
    )


def _faults(pair: Pair, rollout: int) -> Iterator[Fault]:
    """Both; the second one waits for the next attempt where the first one has its place, or is left out."""
    first, second = pair
    yield Fault(kind=first.name, where=_where(first, rollout, "2"), when=When(first=1))
    if first.at is not None and first.at == second.at and first.edge == second.edge:
        if first.edge == "driver":
            yield Fault(kind=second.name, where=Where(rollout=rollout, step=second.at, attempt=1))
        return
    yield Fault(kind=second.name, where=_where(second, rollout, "3"), when=When(first=1))


def _where(kind: Kind, rollout: int, step: str) -> Where:
    return Where(rollout=rollout, step=kind.at or step)


async def found_in(played: Scenario, checks: Sequence[Rule]) -> tuple[Case, list[Violation]]:
    """The play, and all that the rules find in it."""
    network = LocalNetwork()
    try:
        case = await play(played, ReferenceTarget(network), session=played.sessions[0], network=network)
    finally:
        await network.aclose()
    return case, [violation for judgement in judge(case, checks) for violation in judgement.violations]


async def _all(session: SessionVersion, share: Fraction, out: Any) -> None:
    checks, began = rules(), time.process_time()
    chosen = pairs(session)[:: share.denominator]
    fired, broken, idle = 0, Counter[str](), 0
    for played, part in plays(chosen, session):
        case, violations = await found_in(played, checks)
        fired += len(case.ledger.fired)
        idle += len(played.faults) - len({each.fault for each in case.ledger.fired})
        for violation in violations:
            at = violation.place.rollout
            names = " + ".join(kind.name for kind in part[at]) if at is not None and at < len(part) else "no fault"
            broken[violation.rule] += 1
            print(f"{session}: {names}: {violation.rule}: {violation.place}: {violation.message}", file=out, flush=True)
    took = time.process_time() - began
    print(
        f"{session}: {len(chosen)} pairs, {fired} faults fired, {idle} never came to strike, "
        f"{sum(broken.values())} violations {dict(broken)}, {took:.0f} s of CPU",
        file=out,
        flush=True,
    )


def main() -> None:
    import sys

    parser = argparse.ArgumentParser(description="Two kinds of fault in each rollout, on our own implementation.")
    parser.add_argument("--session", choices=SESSIONS, action="append", help="Default: all.")
    parser.add_argument("--share", type=Fraction, default=Fraction(1), help="As 1/8: every eighth pair.")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for session in options.session or SESSIONS:
        asyncio.run(_all(session, options.share, sys.stdout))


if __name__ == "__main__":
    main()
