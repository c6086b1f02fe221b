"""Broken payloads are broken in the one way that their kind says."""

from typing import get_args

import httpx
import numpy as np
import pytest
from safetensors.numpy import load, save

from miles_sim.scenarios.model import Garble
from miles_sim.targets.crossing import Crossing
from miles_sim.targets.garble import file_of, garbled, tensors_of

META = np.frombuffer(b'{"samples": [{"status": "completed", "nulls": []}]}', dtype=np.uint8)
ARRAYS = {
    "tokens.0": np.array([1, 2, 70_000]),
    "rollout_log_probs.0": np.array([-0.5, -1.5]),
    "_samples_meta": META,
}
PAYLOAD = save(ARRAYS)


def test_a_file_is_read_and_written_as_the_library_does() -> None:
    again = load(file_of(tensors_of(PAYLOAD)))
    assert again.keys() == ARRAYS.keys()
    assert all(np.array_equal(again[name], array) for name, array in ARRAYS.items())


@pytest.mark.parametrize("kind", get_args(Garble))
def test_every_kind_of_a_scenario_changes_the_payload(kind: str) -> None:
    assert garbled(kind, PAYLOAD) != PAYLOAD


@pytest.mark.parametrize("kind", get_args(Garble))
def test_a_payload_without_samples_is_cut(kind: str) -> None:
    empty = save({"_samples_meta": META})
    assert garbled(kind, empty) == empty[: len(empty) // 2]


def test_kinds_change_what_they_name_alone() -> None:
    assert "rollout_log_probs.0" not in load(garbled("no_tensor", PAYLOAD))
    narrow = load(garbled("wrong_dtype", PAYLOAD))["tokens.0"]
    assert (narrow.dtype, narrow.tolist()) == (np.int32, [1, 2, 70_000])
    assert set(load(garbled("stray_tensor", PAYLOAD))) - set(ARRAYS) == {"tokens.999"}
    assert b"status" not in load(garbled("no_field", PAYLOAD))["_samples_meta"].tobytes()
    assert load(garbled("no_json", PAYLOAD))["_samples_meta"].tobytes() == b"{" * len(META)


@pytest.mark.parametrize("content", [b"\x10" + b"\0" * 7, (40).to_bytes(8, "little") + b"{}"])
def test_what_is_no_file_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="payload"):
        tensors_of(content)


@pytest.mark.parametrize("garble", [None, "no_json"])
async def test_a_crossing_tells_what_was_sent_and_hands_on_what_is_asked(garble: str | None) -> None:
    way = httpx.MockTransport(lambda request: httpx.Response(200, content=PAYLOAD))
    crossing = Crossing(way, garble)
    async with httpx.AsyncClient(transport=crossing) as client:
        await client.post("http://sessions/sessions")
        assert crossing.payload is None
        given = await client.post("http://sessions/sessions/1/samples")
    assert given.content == (PAYLOAD if garble is None else garbled(garble, PAYLOAD))
    assert crossing.payload is not None
