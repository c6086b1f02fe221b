"""Wire: what the session server computed is what the driver holds."""

import base64
from typing import Any

from miles_sim.document import DocumentError, read
from miles_sim.targets.observation import Rows, SampleView
from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.payload import LISTS, ROWS, SamplesWire, read_payload, wrong_tensors
from miles_sim.verify.rule import RolloutCase

from ._struck import may_differ
from ._truth import MAY_BE_OWNED, SERVER_OWNED, agent_finished, counted, spec_sums


@rule(
    "wire/every-computed-field-crosses",
    level="meaning",
    reason="A field that is missing in one table of the wire comes out as its default, and nobody is told.",
    source="miles samples codec; design 6.2",
)
def every_computed_field_crosses(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """No computed field of a sample is at its default where the engine gave it a value, and no fault took it."""
    found = rollout.alignment(sample)
    if not found.spans or not sample.response_length:
        return
    crossed = {
        "status": sample.status != "pending",
        "response": bool(sample.response),
        "loss_mask": sample.loss_mask is not None or case.session == "direct",  # None is all ones
        "rollout_log_probs": sample.rollout_log_probs is not None,
    }
    if "spec_info" in case.capabilities and any(spec_sums(found.generations).values()):
        crossed["spec_info"] = any(counted(sample).values())
    if "prefix_cache_info" in case.capabilities:
        info = sample.prefix_cache_info
        crossed["prefix_cache_info"] = info is not None and info.total_prompt_tokens > 0
    if "weight_versions" in case.capabilities:
        crossed["weight_versions"] = bool(sample.weight_versions)
    for field in may_differ(case, rollout):
        crossed.pop(field, None)
    for field, there in crossed.items():
        see.that(there, f"{field} did not cross", expected="the computed value", found="its default", detail=field)


@rule(
    "wire/agent-metadata-crosses",
    level="meaning",
    reason="Reward code reads what the agent left; a lost reward is a wrong one.",
    source="miles default_postprocess (v2) and agentic_tool_call (v1); design 6.8",
)
def agent_metadata_crosses(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """What the agent returned stands in each sample's metadata, but for the server's keys; under v2 the reward too."""
    returned = case.scenario.plan.returns
    if (
        case.session == "direct"
        or returned is None
        or not rollout.alignment(sample).spans
        or not agent_finished(case, rollout)
    ):
        return
    for key in sorted(set(returned) - SERVER_OWNED - MAY_BE_OWNED):
        see.equal(sample.metadata.get(key), returned[key], "what the agent returned was lost", key)
    for key in sorted(set(returned) & SERVER_OWNED):
        see.that(sample.metadata.get(key) != returned[key], "a key of the server's was overwritten", detail=key)
    if case.session == "v2" and returned.get("reward") is not None:
        see.equal(sample.reward, returned["reward"], "the agent's reward is not the sample's", "reward")


@rule(
    "wire/schema-pinned",
    level="meaning",
    needs={"wire"},
    reason="Server and driver are started apart: a field that moved is read as another, or as nothing.",
    source="miles rollout/session/samples/codec.py; contracts/schemas/samples-wire.json",
)
def schema_pinned(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """What the session server sends is a samples payload as its schema says, tensor by tensor."""
    if rollout.view.payload is None:
        return
    payload = read_payload(rollout.view.payload)
    try:
        read(SamplesWire, payload.document, name="payload")
    except DocumentError as error:
        see.that(False, "the payload does not fit its schema", expected="samples-wire", found=str(error))
        return
    see.equal(wrong_tensors(payload), [], "tensors of the payload")


@rule(
    "wire/round-trip-lossless",
    level="meaning",
    needs={"wire"},
    reason="A number that is rounded, narrowed or lost on the way is trained on as if the engine had said it.",
    source="miles samples codec (int64, float64 and int32 arrays, the rest JSON); design 6.2, 6.3",
)
def round_trip_lossless(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """Each field that the session server sent stands in the driver's sample, to the last bit."""
    if rollout.view.payload is None or rollout.view.error is not None or case.scenario.garble is not None:
        return
    payload = read_payload(rollout.view.payload)
    sent = len(payload.meta["samples"])
    if not sent or not see.equal(len(rollout.samples), sent, "number of samples at the driver"):
        return
    for number, sample in enumerate(rollout.samples):
        for field, value in payload.values(number).items():
            if field == "reward" and value is None:
                continue  # keeps the input's
            for name, found, expected in _pairs(field, value, sample):
                see.equal(found, expected, f"{name} is not what was sent", f"sample {number}")


@rule(
    "wire/malformed-refused",
    level="meaning",
    needs={"wire"},
    reason="Half a payload that is taken for a whole one is half a rollout, or another one's arrays.",
    source="miles samples codec: missing, unreferenced and mistyped tensors are errors; design 6.7",
)
def malformed_refused(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """A payload that was broken on the way is an error that says what is wrong with it, and no sample."""
    garble = case.scenario.garble
    if garble is None or rollout.view.payload is None:
        return
    error = rollout.view.error
    see.that(
        error is not None and bool(error.message) and "AssertionError" not in (error.type, *error.bases),
        f"a payload that was broken ({garble})",
        expected="an error of its own that says what is wrong",
        found=f"{error.type}: {error.message}" if error else f"{len(rollout.samples)} samples",
    )
    see.equal(len(rollout.samples), 0, "samples of a broken payload")


def _pairs(field: str, value: Any, sample: SampleView) -> list[tuple[str, Any, Any]]:
    """(name, found, expected) of one field, or of its parts where the driver adds some of its own."""
    found = getattr(sample, field, sample.other.get(field))
    if field in ROWS and isinstance(found, Rows):
        return [(field, (found.shape, base64.b64decode(found.base64)), value)]
    if field in LISTS and found is not None:
        return [(field, list(found), value)]
    if field in ("spec_info", "prefix_cache_info") and found is not None:
        return [(f"{field}.{n}", getattr(found, n), part) for n, part in value.items() if hasattr(found, n)]
    if field == "metadata" and isinstance(found, dict):
        times = ("lifecycle",)  # times of day are left out of an observation
        return [(f"metadata.{key}", found.get(key), part) for key, part in value.items() if key not in times]
    return [(field, list(found) if isinstance(found, tuple) else found, value)]
