"""What the engine is asked: bodies that share nothing, room that no limit is passed by."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.direct.request import generate_body, max_new_tokens, prompt_ids, room
from miles_sim.rollout.errors import AssemblyError, SettingsError
from miles_sim.rollout.sample import Sample
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ByteTokenizer


def test_a_body_shares_nothing_with_the_parameters() -> None:
    params: dict[str, Any] = {"stop": ["x"], "custom_params": {"a": [1]}}
    ids = [1, 2]
    body = generate_body(ids, params, RolloutSettings(), Sample(), limit=3)
    body["sampling_params"]["stop"].append("y")
    body["sampling_params"]["custom_params"]["a"].append(2)
    body["input_ids"].append(3)
    assert (ids, params) == ([1, 2], {"stop": ["x"], "custom_params": {"a": [1]}})


def test_a_body_asks_for_what_the_settings_replay_and_nothing_else() -> None:
    plain = {"input_ids": [1], "sampling_params": {"max_new_tokens": 3}, "return_logprob": True}
    assert generate_body([1], {}, RolloutSettings(), Sample(), limit=3) == plain
    routed = RolloutSettings(routing_replay=True, indexer_replay=True, lora_path="l")
    assert generate_body([1], {"n": 1}, routed, Sample(), limit=3) == {
        **plain,
        "sampling_params": {"n": 1, "max_new_tokens": 3},
        "return_routed_experts": True,
        "return_indexer_topk": True,
        "lora_path": "l",
    }


@given(
    budget=st.none() | st.integers(0, 50),
    limit=st.none() | st.integers(1, 50),
    known=st.integers(0, 60),
    data=st.data(),
)
def test_room_is_what_the_tighter_limit_leaves_and_its_name(
    budget: int | None, limit: int | None, known: int, data: st.DataObject
) -> None:
    if budget is None and limit is None:
        return
    own = data.draw(st.integers(0, known))
    settings = RolloutSettings(max_seq_len=limit)
    left, name = room(budget, settings, known=known, own=own)
    by_name = {"max_new_tokens": budget, "max_seq_len": limit}
    lefts = {
        n: max(bound - (own if n == "max_new_tokens" else known), 0)
        for n, bound in by_name.items()
        if bound is not None
    }
    assert left == min(lefts.values())
    assert lefts[name] == left


def test_something_must_bound_a_reply() -> None:
    assert max_new_tokens({"max_new_tokens": 0}, RolloutSettings()) == 0
    assert max_new_tokens({}, RolloutSettings(max_seq_len=5)) is None
    told = "max_new_tokens: None, and max_seq_len: None; one of them must bound a reply"
    with pytest.raises(SettingsError, match=f"^{re.escape(told)}$"):
        max_new_tokens({}, RolloutSettings())


def test_template_and_tools_reach_the_prompt() -> None:
    tokenizer = ByteTokenizer()
    messages = [{"role": "user", "content": "hi"}]
    specs = [{"type": "function", "function": {"name": "f"}}]
    plain, with_tools = (prompt_ids(Sample(prompt=messages), tokenizer, RolloutSettings(), s) for s in (None, specs))
    assert plain == tokenizer.render(messages)
    assert with_tools == tokenizer.render(messages, tools=specs) != plain
    assert prompt_ids(Sample(multimodal_inputs={"images": None}, prompt="a"), tokenizer, RolloutSettings(), None)
    with pytest.raises(AssemblyError, match=r"^multimodal_inputs\.videos: not served on the direct path$"):
        prompt_ids(Sample(multimodal_inputs={"images": None, "videos": [1]}), tokenizer, RolloutSettings(), None)
