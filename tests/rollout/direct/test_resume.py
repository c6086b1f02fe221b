"""Where a rollout goes on, and what of its parts is joined: rows as reported when their ids were sampled."""

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from miles_sim.rollout.direct.resume import lifecycle, start_of
from miles_sim.rollout.errors import AssemblyError, UpstreamResponseError
from miles_sim.rollout.sample import Sample, Status


def with_rows(engine: Any) -> None:
    """Each request reports rows of its own number, so that it shows whose they are."""

    def change(body: dict[str, Any]) -> None:
        number = len(engine.asked)
        count = body["meta_info"]["prompt_tokens"] + body["meta_info"]["completion_tokens"] - 1
        rows = np.full((count, 1, 2), number, dtype="<i4")
        body["meta_info"]["routed_experts"] = base64.b64encode(rows.tobytes()).decode()

    engine.change = change


async def test_rows_stay_those_of_the_request_that_sampled_them(direct: Any, tools: Any, calls: Any) -> None:
    direct.settings = replace(direct.settings, routing_replay=True)
    direct.engine.replies = [calls(6), "done"]
    direct.engine.abort_at = {0: 4}
    with_rows(direct.engine)
    broken = await direct(tools=tools())
    sample = await direct(broken, tools=tools())
    sample.validate()
    assert all(asked["return_routed_experts"] for asked in direct.engine.asked)
    ends = [len(asked["input_ids"]) for asked in direct.engine.asked] + [len(sample.tokens)]
    rows = sample.rollout_routed_experts[:, 0, 0].tolist()
    assert rows[: ends[1] - 1] == [1] * (ends[1] - 1)
    assert set(rows[ends[1] - 1 : ends[2] - 1]) <= {2, 3}
    assert rows[ends[2] - 1 :] == [3] * (ends[3] - ends[2])


async def test_rows_that_are_not_told_again_are_refused_by_name(direct: Any) -> None:
    direct.settings = replace(direct.settings, routing_replay=True)
    direct.engine.abort_at = {0: 4}
    with_rows(direct.engine)
    broken = await direct()
    direct.engine.change = None
    with pytest.raises(UpstreamResponseError, match=r"meta_info\.routed_experts: missing, though it was asked for"):
        await direct(broken)
    direct.engine.abort_at = {2: 0, 3: 2}
    again = await direct(broken)
    assert again.status is Status.ABORTED
    assert np.array_equal(again.rollout_routed_experts, broken.rollout_routed_experts)
    with pytest.raises(AssemblyError, match="rollout_routed_experts: the engine tells none"):
        await direct(broken)


async def test_rows_of_another_shape_than_those_held_are_refused_by_name(direct: Any) -> None:
    direct.settings = replace(direct.settings, routing_replay=True)
    direct.engine.abort_at = {0: 4}
    with_rows(direct.engine)
    broken = await direct()
    broken.rollout_routed_experts = np.zeros((len(broken.tokens) - 1, 1, 3), dtype=np.int32)
    with pytest.raises(AssemblyError, match=r"^rollout_routed_experts: rows of shape \(1, 2\), but \(1, 3\) in"):
        await direct(broken)


async def test_a_sample_of_someone_else_goes_on_from_its_ids(direct: Any, prompt: Any) -> None:
    """No lifecycle: all that was sampled is one reply, and its text is not looked at."""
    tokenizer = direct.engine.tokenizer
    asked = tokenizer.render(prompt)
    begun = Sample(
        index=0,
        prompt="text that is not the prompt's ids",
        tokens=[*asked, *tokenizer.encode("forty")],
        response="other text",
        response_length=5,
        rollout_log_probs=[-1.0] * 5,
        status=Status.ABORTED,
        weight_versions=["9"],
    )
    sample = await direct(begun, sampling_params={"max_new_tokens": 12})
    (request,) = direct.engine.asked
    assert request["input_ids"] == begun.tokens
    assert request["sampling_params"]["max_new_tokens"] == 7
    assert (sample.response, sample.weight_versions) == ("forty-two", ["9", "0"])
    assert sample.loss_mask == [1] * sample.response_length


def test_replies_and_their_ids_are_counted(direct: Any) -> None:
    segments = [
        {"finish_reason": "stop", "span": [2, 4]},
        {"finish_reason": "abort", "span": [5, 5]},
        {"finish_reason": "abort", "span": [5, 8]},
    ]
    begun = Sample(
        tokens=list(range(8)),
        response_length=6,
        rollout_log_probs=[0.0] * 6,
        status=Status.ABORTED,
        metadata={"lifecycle": segments},
    )
    start = start_of(begun, direct.engine.tokenizer, direct.settings, None)
    assert (start.begin, start.generations, start.turns, start.own) == (2, 3, 1, 3)


async def test_what_goes_on_shares_no_metadata_however_deep_with_what_was_broken_off(direct: Any, prompt: Any) -> None:
    direct.engine.abort_at = {0: 4}
    broken = await direct(Sample(index=0, prompt=prompt, metadata={"own": {"deep": [1]}}))
    sample = await direct(broken)
    sample.metadata["own"]["deep"].append(2)
    assert broken.metadata["own"] == {"deep": [1]}


@pytest.mark.parametrize("segments", [3, [3], [{"span": [0, 1]}], [{"finish_reason": "stop", "span": None}]])
def test_a_lifecycle_of_another_shape_is_refused(segments: Any) -> None:
    with pytest.raises(AssemblyError, match=r"metadata\.lifecycle"):
        lifecycle(Sample(metadata={"lifecycle": segments}))


async def test_generations_are_numbered_on_across_breaks(direct: Any, tools: Any, calls: Any) -> None:
    direct.engine.replies = [calls(6), "done"]
    direct.engine.abort_at = {0: 4, 2: 1}
    broken = await direct(tools=tools())
    sample = await direct(await direct(broken, tools=tools()), tools=tools())
    told = [(s["turn"], s["node_id"], s["finish_reason"]) for s in sample.metadata["lifecycle"]]
    assert told == [(1, 0, "abort"), (2, 1, "stop"), (3, 2, "abort"), (4, 3, "stop")]
