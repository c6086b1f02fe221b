"""The samples payload is read as it was written, without the codec that wrote it."""

import base64
from typing import Any

import numpy as np
import pytest

from miles_sim.document import DocumentError, read
from miles_sim.rollout.counters import SpecInfo
from miles_sim.rollout.sample import Sample, Status
from miles_sim.rollout.wire import encode_samples
from miles_sim.targets.garble import file_of, garbled, tensors_of
from miles_sim.verify.payload import SamplesWire, read_payload, wrong_tensors


def sample(**fields: Any) -> Sample:
    values: dict[str, Any] = {
        "tokens": [5, 6, 7],
        "response": "x",
        "response_length": 2,
        "loss_mask": [1, 0],
        "rollout_log_probs": [-0.1, 1e-300],
        "status": Status.COMPLETED,
        "metadata": {"note": "ü"},
        "spec_info": SpecInfo(3, 6, 2, 5),
    }
    return Sample(**{**values, **fields})


def text(*samples: Sample) -> str:
    payload = encode_samples(samples, {"tree": {}}, None if samples else "no_records", session="v2")
    return base64.b64encode(payload).decode()


def test_every_number_comes_out_as_it_went_in() -> None:
    rows = np.arange(8, dtype=np.int32).reshape(2, 2, 2)
    payload = read_payload(text(sample(), sample(rollout_routed_experts=rows, loss_mask=None)))
    first, second = payload.values(0), payload.values(1)
    assert first["tokens"] == [5, 6, 7]
    assert first["rollout_log_probs"] == [-0.1, 1e-300]
    assert (first["loss_mask"], second["loss_mask"]) == ([1, 0], None)
    assert second["rollout_routed_experts"] == ((2, 2, 2), rows.tobytes())
    assert first["spec_info"]["spec_draft_token_num"] == 6
    assert first["metadata"] == {"note": "ü"}
    assert wrong_tensors(payload) == []
    assert read(SamplesWire, payload.document, name="payload").meta.session == "v2"


def test_an_empty_payload_has_no_tensors() -> None:
    payload = read_payload(text())
    assert (payload.tensors, payload.meta["empty_reason"]) == ({}, "no_records")
    assert wrong_tensors(payload) == []


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("no_tensor", ["rollout_log_probs.0 is missing"]),
        ("wrong_dtype", ["tokens.0 is I32 of shape [3], not I64"]),
        ("stray_tensor", ["tokens.999 belongs to no sample"]),
    ],
)
def test_wrong_tensors_are_named(kind: str, said: list[str]) -> None:
    broken = garbled(kind, base64.b64decode(text(sample())))
    assert wrong_tensors(read_payload(base64.b64encode(broken).decode())) == said


def test_a_field_that_is_missing_does_not_fit_the_schema() -> None:
    broken = read_payload(base64.b64encode(garbled("no_field", base64.b64decode(text(sample())))).decode())
    with pytest.raises(DocumentError, match=r"meta\.samples\[0\]\.status"):
        read(SamplesWire, broken.document, name="payload")


@pytest.mark.parametrize("content", [b"", b"\x08", b"\xff" * 40])
def test_what_is_no_payload_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="payload"):
        read_payload(base64.b64encode(content).decode())


def test_a_file_without_the_json_part_is_refused() -> None:
    tensors = tensors_of(base64.b64decode(text(sample())))
    tensors.pop("_samples_meta")
    with pytest.raises(ValueError, match="_samples_meta"):
        read_payload(base64.b64encode(file_of(tensors)).decode())
