"""Adapters: the weights that sampled are those that are trained."""

from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.rule import RolloutCase


@rule(
    "engine/adapter-named",
    level="meaning",
    needs={"lora"},
    reason="An adapter is trained on what the base model said, and its curve stays flat.",
    source="miles PR #2075; SGLang lora_path",
)
def adapter_named(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """Where an adapter is trained, every generation of the play is that adapter's."""
    if case.scenario.lora is None:
        return
    for generation in rollout.generations:
        see.equal(generation.lora, case.scenario.lora, "a generation is not the adapter's", generation.id)
