"""HTTP: what agents of any make can read."""

from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.rule import RolloutCase


@rule(
    "session/headers-once",
    level="meaning",
    severity="should",
    reason="A client that is strict takes a reply with two Date headers for broken, and its agent never runs.",
    source="miles PR #1828 (aiohttp agents fail on headers that the proxy adds to its own); RFC 9110 section 5.3",
)
def headers_once(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """In the reply to each of the agent's requests, every header that may stand but once does."""
    for turn in rollout.turns:
        if turn.response_id is not None and case.session != "direct":
            see.equal(turn.doubled, (), "headers that stand more than once", f"step {turn.step}")
