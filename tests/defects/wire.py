"""What is taken off the wire, and what a hook may hand on."""

from typing import Any

import numpy as np
import pytest

from miles_sim.rollout import collect, selection, wire
from miles_sim.rollout.counters import SpecInfo
from miles_sim.rollout.sample import Sample

from .defect import defect


@defect("agent-reserved-keys/v2", "wire/round-trip-lossless", "wire/agent-metadata-crosses")
def rewards_are_whole_numbers(m: pytest.MonkeyPatch) -> None:
    """The driver reads a reward of 0.5 as 0."""
    set_json = wire._set_json

    def whole(sample: Sample, name: str, value: Any, place: str) -> None:
        set_json(sample, name, int(value) if name == "reward" and value is not None else value, place)

    m.setattr(wire, "_set_json", whole)


@defect("linear/v2", "tokens/logprobs-aligned")
def numbers_are_rounded_on_the_way(m: pytest.MonkeyPatch) -> None:
    """The driver reads logprobs in single precision."""
    overlay = wire._overlay

    def narrow(*arguments: Any) -> Sample:
        sample = overlay(*arguments)
        sample.rollout_log_probs = [float(np.float32(value)) for value in sample.rollout_log_probs or []]
        return sample

    m.setattr(wire, "_overlay", narrow)


@defect("linear/v2", "wire/schema-pinned")
def ids_are_narrower_on_the_wire(m: pytest.MonkeyPatch) -> None:
    """Both ends of one build agree on 32 bits, and no other driver can read them."""
    m.setitem(wire.FIELDS, "tokens", wire.WireField("ids", "int32", nullable=False))


@defect("garbled-wrong-dtype/v2", "wire/malformed-refused")
def any_dtype_is_taken(m: pytest.MonkeyPatch) -> None:
    """An array is converted to what it should have been, whatever it was."""
    m.setattr(wire, "_checked", lambda spec, array, place: array)


@defect("garbled-stray-tensor/v1", "wire/malformed-refused")
def what_is_left_over_is_passed_over(m: pytest.MonkeyPatch) -> None:
    """Tensors that no sample refers to are left where they are: another server's rows go unseen."""
    load = wire._load
    m.setattr(
        wire, "_load", lambda payload: {name: a for name, a in load(payload).items() if not name.endswith(".999")}
    )


@defect("hook-foreign/v2", "selection/hooks-contained")
def hooks_may_make_samples_up(m: pytest.MonkeyPatch) -> None:
    """What a picker answers with is not compared with what it was given."""
    m.setattr(collect, "pick", lambda samples, metadata, hook: hook(samples, metadata))


@defect("hook-raises/v2", "selection/hooks-contained")
def a_hook_that_fails_is_passed_over(m: pytest.MonkeyPatch) -> None:
    """A picker that raises is logged, and every leaf is trained on, whatever it was there to leave out."""
    pick = collect.pick

    def lenient(samples: list[Sample], metadata: dict[str, Any], hook: Any) -> list[Sample]:
        try:
            return pick(samples, metadata, hook)
        except Exception:
            return samples

    m.setattr(collect, "pick", lenient)


@defect("agent-reserved-keys/v2", "wire/agent-metadata-crosses")
def an_agent_may_write_any_key(m: pytest.MonkeyPatch) -> None:
    """miles default_postprocess: what the agent returns as `lifecycle` or `messages` replaces the server's own."""
    m.setattr(selection, "RESERVED", ())


@defect("direct-tools/v2+direct", "counters/direct-session-parity")
def one_path_alone_counts(m: pytest.MonkeyPatch) -> None:
    """miles before PR #2028: counters are read where the engine is asked directly, and nowhere else."""
    assemble = collect.assemble

    def uncounted(*arguments: Any, **keywords: Any) -> Sample | None:
        sample = assemble(*arguments, **keywords)
        if sample is not None:
            sample.spec_info = SpecInfo()
        return sample

    m.setattr(collect, "assemble", uncounted)
