"""Our own implementation holds under two faults in one rollout: a sample of all pairs."""

from random import Random

import pytest

from miles_sim.scenarios.model import SessionVersion

from .pairs import SESSIONS, found_in, pairs, plays, rules

SAMPLE = 24


@pytest.mark.parametrize("session", SESSIONS)
async def test_two_faults_in_a_rollout_leave_nothing_false(session: SessionVersion) -> None:
    chosen = Random(7).sample(pairs(session), k=SAMPLE)
    struck = 0
    for played, part in plays(chosen, session):
        case, violations = await found_in(played, rules())
        struck += len({each.rollout for each in case.ledger.fired})
        assert violations == [], [[kind.name for kind in pair] for pair in part]
    assert struck > SAMPLE / 2
