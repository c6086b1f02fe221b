"""Identity: which rollout a sample belongs to, and what it takes over from its input."""

from miles_sim.targets.observation import SampleView
from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.rule import RolloutCase

from ._truth import (
    MAY_BE_OWNED,
    SERVER_OWNED,
    effective_id,
    ids_clash,
    must_be_rejected,
    nothing_to_train,
    rewards_clash,
    step_is_filled,
)

_V2 = {"session.v2", "identity"}


@rule(
    "identity/siblings-share-id",
    level="meaning",
    needs=_V2,
    reason="Siblings with different ids weigh as several rollouts in the loss and in reward normalisation.",
    source="miles PR #2368; design 6.1",
)
def siblings_share_id(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """All samples of one rollout carry one and the same rollout_id, and it is not None."""
    if case.session != "v2" or len(rollout.samples) < 2:
        return
    ids = [sample.rollout_id for sample in rollout.samples]
    see.that(
        None not in ids and len(set(ids)) == 1,
        "siblings do not share one rollout_id",
        expected=f"{effective_id(rollout.input)} on all {len(ids)}",
        found=ids,
    )


@rule(
    "identity/explicit-id-kept",
    level="meaning",
    needs={"identity"},
    reason="A caller that names its rollouts finds its samples under another name.",
    source="miles PR #2368; design 6.1",
)
def explicit_id_kept(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """A rollout_id on the input stands on each sample, 0 included."""
    if rollout.input.rollout_id is not None:
        see.equal(sample.rollout_id, rollout.input.rollout_id, "the input's rollout_id was not kept")


@rule(
    "identity/index-fallback",
    level="meaning",
    needs=_V2,
    reason="Siblings without an id fail validation, or fall apart into rollouts of their own.",
    source="miles PR #2368; design 6.1",
)
def index_fallback(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """Without a rollout_id on the input, several leaves carry its index, 0 included."""
    source = rollout.input
    if case.session != "v2" or source.rollout_id is not None or source.index is None or len(rollout.samples) < 2:
        return
    for number, sample in enumerate(rollout.samples):
        see.equal(sample.rollout_id, source.index, "rollout_id is not the input's index", f"sample {number}")


@rule(
    "identity/single-leaf-effective-id",
    level="meaning",
    needs=_V2,
    reason="A lone leaf is grouped under a rollout that is not its own.",
    source="miles PR #2368 and #2536: both policies give one effective id; design 6.1",
)
def single_leaf_effective_id(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """The effective id of a single sample (rollout_id, else index) is that of its input."""
    if case.session == "v2" and len(rollout.samples) == 1 and not must_be_rejected(case, rollout.input):
        see.equal(effective_id(rollout.samples[0]), effective_id(rollout.input), "the effective id changed")


@rule(
    "identity/missing-rejected",
    level="meaning",
    needs=_V2,
    reason="Samples without identity cannot be grouped; found late, a whole agent run is lost.",
    source="miles PR #2368; design 6.1",
)
def missing_rejected(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """Without rollout_id and index a tree rollout is refused before the agent runs, by a real error naming both."""
    if not must_be_rejected(case, rollout.input):
        return
    error = rollout.view.error
    if error is None:
        see.that(False, "a rollout without identity was served", expected="an error", found="samples")
    else:
        see.that(
            "AssertionError" not in (error.type, *error.bases),
            "the refusal is an assertion, which python -O removes",
            expected="an exception of its own",
            found=error.type,
        )
        see.that(
            "rollout_id" in error.message and "index" in error.message,
            "the refusal does not name both fields",
            expected="rollout_id and index",
            found=error.message,
        )
    see.that(not rollout.view.agent_ran, "the agent ran for nothing", expected="refused first", found="agent ran")


@rule(
    "identity/missing-rejected-under-O",
    level="meaning",
    needs=_V2 | {"python-O"},
    reason="A guard that is an assert is gone in production: unnamed samples flow on.",
    source="miles PR #2368 (assert rollout_id is not None); design 6.1",
)
def missing_rejected_under_o(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """Under python -O too a tree rollout without rollout_id and index is refused."""
    if must_be_rejected(case, rollout.input):
        found = [sample.rollout_id for sample in rollout.samples]
        see.that(rollout.view.error is not None, "served under -O", expected="an error", found=f"rollout_ids {found}")


@rule(
    "identity/input-untouched",
    level="meaning",
    reason="The input is reused for retries and for other rollouts of its group; a change leaks into them.",
    source="design 6.1, 6.7",
)
def input_untouched(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """The input sample is the same after the rollout as before it."""
    before, after = rollout.view.input.model_dump(), rollout.view.input_after.model_dump()
    changed = sorted(field for field in before if before[field] != after[field])
    see.equal(changed, [], "fields of the input sample changed")


@rule(
    "identity/no-aliasing",
    level="meaning",
    reason="A mutable value in common lets a change of one sample (a mask, metadata) reach its sibling.",
    source="design 6.1",
)
def no_aliasing(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """Samples share no mutable value with each other or with the input."""
    if rollout.samples:
        see.equal(list(rollout.view.shared_objects), [], "mutable values are shared")


@rule(
    "identity/fields-carried",
    level="meaning",
    reason="Reward code and group statistics read these fields of the sample, not of its input.",
    source="miles samples codec (overlay on a copy of the input); design 6.8",
)
def fields_carried(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """group_index, index, label, prompt and metadata of the input stand on each sample."""
    source = rollout.view.input
    for field in ("group_index", "index", "label", "prompt"):
        see.equal(getattr(sample, field), getattr(source, field), f"{field} of the input was not carried", field)
    overwritten = SERVER_OWNED | MAY_BE_OWNED | set(case.scenario.plan.returns or {})
    for key in sorted(set(source.metadata) - overwritten):
        see.equal(sample.metadata.get(key), source.metadata[key], "metadata of the input was not carried", key)


@rule(
    "identity/distinct-across-batch",
    level="meaning",
    needs={"identity", "batch.validate"},
    reason="Two rollouts under one id share a loss denominator and a place in reward normalisation.",
    source="design 6.1: explicit 7 beside index 7 is refused",
)
def distinct_across_batch(case: Case, see: Recorder) -> None:
    """No two rollouts of a batch share an effective id; a batch whose inputs clash is refused."""
    if len(case.rollouts) < 2 or case.observation.batch is None:
        return
    if ids_clash(case):
        error = case.observation.batch.error
        see.that(error is not None, "two rollouts under one id were accepted", expected="an error", found="train data")
        return
    owners: dict[int | None, int] = {}
    for rollout in case.rollouts:
        for sample in rollout.samples:
            owner = owners.setdefault(effective_id(sample), rollout.number)
            see.equal(owner, rollout.number, f"rollout {rollout.number} has the id of another", "batch")


@rule(
    "identity/accepted-downstream",
    level="meaning",
    needs={"batch.validate"},
    reason="What generate returns and the trainer refuses ends the training step.",
    source="miles validate_compact_rollout_ids; design 6.8",
)
def accepted_downstream(case: Case, see: Recorder) -> None:
    """The nested batch of all rollouts passes validation and conversion."""
    batch = case.observation.batch
    if batch is None or not any(rollout.samples for rollout in case.rollouts):
        return
    if ids_clash(case) or any(effective_id(source) is None for source in case.scenario.rollouts):
        return
    if rewards_clash(case) or not step_is_filled(case):
        return
    error = batch.error
    see.that(
        error is None,
        "the batch was refused",
        expected="accepted",
        found=f"{error.type}: {error.message}" if error else "",
    )


@rule(
    "identity/aborted-shape",
    level="meaning",
    reason="A rollout that vanishes, or comes in another shape, breaks group sizes and the caller's unpacking.",
    source="miles agentic_tool_call: one aborted copy of the input; design 6.8",
)
def aborted_shape(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """A rollout with nothing to train ends in one aborted sample without trainable ids, shaped as any other."""
    if rollout.view.error is not None:
        return
    shape = "list" if case.session == "v2" else "single"
    see.equal(rollout.view.returned, shape, f"a {case.session} rollout returned another shape")
    if not nothing_to_train(case, rollout):
        return
    see.equal(len(rollout.samples), 1, "number of samples of a rollout with nothing to train")
    for number, sample in enumerate(rollout.samples):
        see.equal(sample.status, "aborted", "status of a rollout with nothing to train", f"sample {number}")
        see.equal(
            sum(sample.loss_mask or ()), 0, "trainable ids of a rollout with nothing to train", f"sample {number}"
        )
