"""A job as miles' command line would have it."""

import pytest

from miles_sim.targets.miles_arguments import arguments


@pytest.fixture
def args(job_for):
    return lambda **fields: arguments(
        job_for("http://127.0.0.1:8101", **fields), checkpoint="/model", session_url="http://127.0.0.1:8102"
    )


def batch(**fields):
    return {"batch": {"global_batch_size": None, "dp_size": 1, "normalize": "std", "rewards": "rollout", **fields}}


def test_sessions_and_the_engine_are_reached_where_the_job_says(args):
    found = args()
    assert (found.session_server_ip, found.session_server_port, found.session_server_ports) == (
        "127.0.0.1",
        8102,
        [8102],
    )
    assert (found.sglang_router_ip, found.sglang_router_port) == ("127.0.0.1", 8101)


@pytest.mark.parametrize(
    ("asked", "size", "dynamic", "kept"),
    [
        ({}, 3, False, True),
        ({"dp_size": 2}, 3, True, False),
        ({"global_batch_size": 2}, 2, False, False),
        ({"global_batch_size": 2, "dp_size": 2}, 2, False, False),
    ],
)
def test_a_step_is_of_the_size_asked_else_of_all_that_the_ranks_can_share(args, asked, size, dynamic, kept):
    found = args(inputs=[{"index": n} for n in range(3)], **batch(**asked))
    assert found.global_batch_size == size
    assert found.use_dynamic_global_batch_size is dynamic
    assert found.disable_rollout_trim_samples is kept


@pytest.mark.parametrize(
    ("asked", "normalized", "deviation"), [("none", False, False), ("mean", True, False), ("std", True, True)]
)
def test_rewards_are_normalized_as_asked(args, asked, normalized, deviation):
    found = args(**batch(normalize=asked))
    assert (found.rewards_normalization, found.grpo_std_normalization) == (normalized, deviation)


def test_an_adapter_is_trained_where_the_job_names_one(args):
    assert args().lora_rank == 0
    assert args(lora="miles_lora").lora_rank > 0


def test_a_direct_play_has_its_turns_and_its_parser(args):
    found = args(session="direct", direct={"tools": [], "parser": "qwen25", "max_turns": 5}, max_seq_len=99)
    assert (found.generate_max_turns, found.generate_tool_call_parser) == (5, "qwen25")
    assert found.rollout_max_context_len == 99
