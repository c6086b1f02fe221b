"""Columns: which there are, whichever row comes first."""

from miles_sim.verify import Case, Recorder, rule

_OPTIONAL = ("rollout_log_probs", "rollout_routed_experts", "rollout_indexer_topk", "weight_versions")
"""Fields of a sample that may be absent, and are columns under the same name."""


@rule(
    "train-data/columns",
    level="meaning",
    needs={"batch.train_data"},
    reason="A column that the first row decides on is lost for the batch where that row is an aborted one.",
    source="miles convert_samples_to_train_data: `if samples[0].rollout_log_probs is not None`; design 6.8",
)
def columns(case: Case, see: Recorder) -> None:
    """What any sample has is a column, and a column has a value in every row, whichever row comes first."""
    batch = case.observation.batch
    data = batch.train_data if batch is not None else None
    if data is None:
        return
    samples = [sample for rollout in case.rollouts for sample in rollout.samples]
    for name in _OPTIONAL:
        if any(getattr(sample, name) for sample in samples if sample.response_length):
            see.that(name in data, f"{name} is no column, though samples have it", found=sorted(data), detail=name)
    for name, column in sorted(data.items()):
        if isinstance(column, list):
            empty = [row for row, value in enumerate(column) if value is None]
            see.equal(empty, [], f"rows of {name} without a value", name)
