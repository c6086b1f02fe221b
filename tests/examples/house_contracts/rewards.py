"""A contract of one's own: what our reward code relies on."""

from miles_sim.targets.observation import SampleView
from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.rule import RolloutCase


@rule(
    "house/answer-is-there",
    level="meaning",
    reason="Our reward code scores the text; a sample without one is scored as a wrong answer.",
    source="our training setup",
)
def answer_is_there(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """A completed sample has a text to score."""
    if sample.status == "completed":
        see.that(sample.response != "", "a completed sample says nothing", expected="a text", found=sample.response)
