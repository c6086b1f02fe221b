"""Wire: what the session server computed is what the driver holds."""

from miles_sim.targets.observation import SampleView
from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.rule import RolloutCase

from ._truth import SERVER_OWNED, agent_finished, counted, spec_sums


@rule(
    "wire/every-computed-field-crosses",
    level="meaning",
    reason="A field that is missing in one table of the wire comes out as its default, and nobody is told.",
    source="miles samples codec; design 6.2",
)
def every_computed_field_crosses(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """No computed field of a sample is at its default where the engine gave it a value."""
    found = rollout.alignment(sample)
    if not found.spans or not sample.response_length:
        return
    crossed = {
        "status": sample.status != "pending",
        "response": bool(sample.response),
        "loss_mask": sample.loss_mask is not None,
        "rollout_log_probs": sample.rollout_log_probs is not None,
    }
    if "spec_info" in case.capabilities and any(spec_sums(found.generations).values()):
        crossed["spec_info"] = any(counted(sample).values())
    if "prefix_cache_info" in case.capabilities:
        info = sample.prefix_cache_info
        crossed["prefix_cache_info"] = info is not None and info.total_prompt_tokens > 0
    if "weight_versions" in case.capabilities:
        crossed["weight_versions"] = bool(sample.weight_versions)
    for field, there in crossed.items():
        see.that(there, f"{field} did not cross", expected="the computed value", found="its default", detail=field)


@rule(
    "wire/agent-metadata-crosses",
    level="meaning",
    reason="Reward code reads what the agent left; a lost reward is a wrong one.",
    source="miles default_postprocess (v2) and agentic_tool_call (v1); design 6.8",
)
def agent_metadata_crosses(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """What the agent function returned stands in each sample's metadata, and under v2 its reward is the sample's."""
    returned = case.scenario.plan.returns
    if (
        case.session == "direct"
        or returned is None
        or not rollout.alignment(sample).spans
        or not agent_finished(case, rollout)
    ):
        return
    for key in sorted(set(returned) - SERVER_OWNED):
        see.equal(sample.metadata.get(key), returned[key], "what the agent returned was lost", key)
    if case.session == "v2" and returned.get("reward") is not None:
        see.equal(sample.reward, returned["reward"], "the agent's reward is not the sample's", "reward")
