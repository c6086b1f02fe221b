"""Which rollout a sample is of, and what it takes over from its input."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from miles_sim.rollout import generate, wire
from miles_sim.rollout.sample import RESERVED, Sample, Status

from .defect import defect


@defect(
    "compaction-summary/v2", "identity/siblings-share-id", "identity/index-fallback", "identity/accepted-downstream"
)
def siblings_without_an_id(m: pytest.MonkeyPatch) -> None:
    """miles before PR #2368: tree samples keep whatever id the input has."""
    m.setattr(generate, "_identity", lambda sample, settings: None)


@defect("id-zero/v2", "identity/explicit-id-kept", "train-data/ids")
def zero_is_no_id(m: pytest.MonkeyPatch) -> None:
    """`rollout_id or index`: 0 is taken for none."""
    m.setattr(generate, "_identity", lambda sample, settings: sample.rollout_id or sample.index)


@defect("id-single-leaf/v2", "identity/single-leaf-effective-id")
def a_lone_leaf_is_numbered_anew(m: pytest.MonkeyPatch) -> None:
    """An id is handed out where a single sample had one already."""
    m.setattr(generate, "_identity", lambda sample, settings: (sample.effective_id or 0) + 1000)


@defect("id-neither/v2", "identity/missing-rejected", crash="the refusal is right, and of the wrong type")
def identity_is_asserted(m: pytest.MonkeyPatch) -> None:
    """miles PR #2368: the check is an assertion, gone under python -O."""

    def identity(sample: Sample, settings: Any) -> int | None:
        if sample.effective_id is None:
            raise AssertionError("v2 samples require rollout_id or index")
        return sample.effective_id

    m.setattr(generate, "_identity", identity)


@defect("id-neither/v2", "identity/missing-rejected", "identity/missing-rejected-under-O")
def the_assertion_is_gone(m: pytest.MonkeyPatch) -> None:
    """The same under python -O: the samples flow on without a name."""
    m.setattr(generate, "_identity", lambda sample, settings: sample.effective_id)


@defect("nothing-generated/v2", "identity/input-untouched", "identity/no-aliasing")
def the_placeholder_is_the_input(m: pytest.MonkeyPatch) -> None:
    """The aborted placeholder is the input itself."""

    def aborted(input: Sample) -> Sample:
        input.status = Status.ABORTED
        return input

    m.setattr(generate, "_aborted", aborted)


@defect("nothing-generated/v2", "identity/aborted-shape", "status/never-pending")
def the_placeholder_stays_pending(m: pytest.MonkeyPatch) -> None:
    """The placeholder of a rollout without records keeps the input's status."""
    m.setattr(generate, "_aborted", copy.deepcopy)


@defect("compaction-summary/v2", "identity/no-aliasing")
def siblings_share_metadata(m: pytest.MonkeyPatch) -> None:
    """The wire's overlay copies the input only one level deep."""

    def shallow(input: Sample) -> Sample:
        for name in RESERVED:  # else the second sample is refused for what the first one wrote
            input.metadata.pop(name, None)
        return copy.copy(input)

    m.setattr(wire, "copy", SimpleNamespace(deepcopy=shallow))


@defect("two-rollouts/v2", "identity/fields-carried")
def the_overlay_starts_from_nothing(m: pytest.MonkeyPatch) -> None:
    """Samples are made anew in place of on top of the input."""
    m.setattr(wire, "copy", SimpleNamespace(deepcopy=lambda input: Sample(index=input.index)))
