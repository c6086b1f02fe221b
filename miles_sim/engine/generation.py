"""The ledger's entry of a finished request."""

from typing import Any

from miles_sim.ledger import Generation, WeightSpan

_BLANK = Generation(
    id="",
    endpoint="",
    attempt=0,
    prompt_ids=(),
    output_ids=(),
    logprobs=(),
    finish_reason={},
    cached_tokens=0,
    weight_version="",
    spec=None,
)


def generation(**values: Any) -> Generation:
    """All fields, by parts of ours: to look at each of some thousand ids again costs more than to draw them."""
    return _BLANK.model_copy(update=values)


def spans_of(changes: list[tuple[str, int]]) -> list[WeightSpan]:
    """Spans of versions from (version, end) pairs; the first span is there even where it is empty
    (sglang utils/weight_versions.py `compute_weight_version_spans`)."""
    spans: list[WeightSpan] = []
    for version, end in changes:
        start = spans[-1].end if spans else 0
        if spans and end <= start:
            continue
        if spans and spans[-1].version == version:
            spans[-1] = WeightSpan(version=version, start=spans[-1].start, end=end)
        else:
            spans.append(WeightSpan(version=version, start=start, end=end))
    return spans
