"""Defects that miles has had, or has: each is impossible here, refused, or visible, and a test shows it.

Ids: `H…` were found by running miles' state of 2026-08-21, `B…` fixed on its main branch, `PR …` are public threads.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

import miles_sim.rollout
from miles_sim.rollout.sample import Sample, Status
from miles_sim.rollout.settings import RolloutSettings

TESTS = Path(__file__).parent.parent
PACKAGE = Path(miles_sim.rollout.__file__).parent


class Bug(NamedTuple):
    id: str
    what: str
    here: Literal["impossible", "refused", "visible"]
    tests: tuple[str, ...]
    """`folder/module.test_name`, below `tests/`."""


BUGS = (
    Bug("H01", "counters never cross the wire", "impossible", ("rollout/test_wire.test_every_field_crosses",)),
    Bug(
        "H02", "counters read under retired names", "impossible", ("rollout/test_counters.test_each_spelling_is_read",)
    ),
    Bug("H03", "ratios averaged", "impossible", ("rollout/test_metrics.test_ratios_are_pooled_not_averaged",)),
    Bug(
        "H04",
        "shared turns counted once a leaf, dropped ones not at all",
        "impossible",
        (
            "rollout/test_metrics.test_each_generation_of_a_rollout_counts_once",
            "rollout/test_metrics.test_generations_behind_a_cut_count_as_generated",
        ),
    ),
    Bug(
        "H05",
        "explicit id and index in one number space",
        "refused",
        (
            "rollout/test_batch.test_batches_that_cannot_be_told_apart_are_refused_by_place",
            "rollout/test_generate.test_missing_identity_is_refused_before_the_agent_runs",
        ),
    ),
    Bug(
        "H07",
        "an unknown finish reason leaves a sample pending",
        "refused",
        (
            "rollout/test_sample.test_unknown_finish_reason_is_refused_and_nothing_is_counted",
            "rollout/session/test_completion.test_a_reply_that_cannot_be_trained_on_is_refused_by_its_field",
        ),
    ),
    Bug(
        "H08",
        "a cut between turns stays completed",
        "impossible",
        ("rollout/test_assembly.test_cut_keeps_a_prefix_and_says_so",),
    ),
    Bug(
        "H09",
        "turns after an early end vanish",
        "visible",
        (
            "rollout/test_assembly.test_turns_after_an_early_end_are_dropped_visibly",
            "rollout/test_merge.test_what_follows_an_early_end_is_dropped_visibly",
        ),
    ),
    Bug(
        "H11",
        "replay rows replaced by the next prefill's",
        "impossible",
        (
            "rollout/test_replay.test_each_sampled_id_keeps_its_own_row",
            "rollout/test_merge.test_rows_of_a_turn_stay_its_own",
        ),
    ),
    Bug(
        "H13",
        "a client that strips reasoning loses its turns",
        "refused",
        (
            "rollout/session/test_linear.test_a_reply_replayed_with_its_reasoning_stripped_is_refused_not_silently_taken_back",
            "rollout/session/test_tree.test_history_told_otherwise_opens_a_root_and_loses_nothing",
        ),
    ),
    Bug(
        "H14",
        "checks that `python -O` takes out",
        "impossible",
        (
            "rollout/test_known_bugs.test_no_check_is_an_assert",
            "targets/test_reference.test_under_optimize_the_document_is_the_same",
        ),
    ),
    Bug(
        "H15",
        "an aborted placeholder crashes the batch",
        "impossible",
        (
            "rollout/test_train_data.test_a_batch_of_placeholders_converts",
            "rollout/test_train_batch.test_a_batch_with_aborted_placeholders_goes_through",
        ),
    ),
    Bug(
        "H17",
        "negative or infinite throughput",
        "impossible",
        ("rollout/test_metrics_time.test_all_figures_are_finite_and_not_negative",),
    ),
    Bug(
        "H18",
        "columns gated on the first row",
        "impossible",
        ("rollout/test_train_data.test_order_of_rows_changes_only_the_order",),
    ),
    Bug(
        "H20",
        "uneven split of compact rollouts",
        "impossible",
        ("rollout/test_split.test_uneven_leaves_give_equal_steps_on_each_rank",),
    ),
    Bug(
        "H22",
        "branches taken for retries, first-turn retries kept",
        "impossible",
        (
            "rollout/test_selection.test_subagent_from_an_earlier_turn_drops_nothing",
            "rollout/test_selection.test_roots_are_siblings_too",
            "rollout/session/test_samples.test_twins_are_kept_and_retries_are_not",
        ),
    ),
    Bug(
        "H24",
        "answered and not recorded",
        "refused",
        (
            "rollout/session/test_linear.test_a_request_beside_one_under_way_is_refused_and_the_first_is_kept",
            "rollout/session/test_interleaving.test_what_is_answered_is_kept_and_what_fails_leaves_no_trace",
        ),
    ),
    Bug(
        "H25",
        "an agent's failure is invisible",
        "visible",
        ("rollout/test_generate.test_agent_that_raises_loses_nothing_that_was_generated",),
    ),
    Bug(
        "H30",
        "several choices or none",
        "refused",
        (
            "rollout/session/test_chat.test_a_field_that_cannot_be_served_is_refused_by_name",
            "rollout/session/test_completion.test_a_reply_that_cannot_be_trained_on_is_refused_by_its_field",
        ),
    ),
    Bug(
        "H31",
        "logprobs that are no numbers",
        "refused",
        (
            "rollout/session/test_completion.test_a_reply_that_cannot_be_trained_on_is_refused_by_its_field",
            "rollout/session/test_bad_input.test_a_reply_that_is_json_to_some_only_is_502_and_unrecorded",
        ),
    ),
    Bug(
        "H32",
        "bad input is an unhandled 500",
        "refused",
        (
            "rollout/session/test_bad_input.test_no_body_breaks_the_server_or_changes_a_session_it_is_refused_by",
            "rollout/session/test_server.test_malformed_tool_arguments_can_be_replayed",
            "rollout/session/test_tree.test_the_cap_is_checked_before_the_engine_works_and_counts_what_is_under_way",
        ),
    ),
    Bug(
        "H35",
        "agent metadata kills the group, or replaces the server's",
        "refused",
        (
            "rollout/test_generate.test_unusable_agent_metadata_is_refused_by_name",
            "rollout/test_selection.test_reserved_keys_are_the_servers",
            "rollout/test_generate.test_metadata_that_assembly_would_overwrite_is_refused_before_the_agent_runs",
        ),
    ),
    Bug(
        "H45",
        "text without logprobs accepted",
        "refused",
        ("rollout/direct/test_reply.test_a_reply_that_cannot_be_trained_on_is_refused_by_field",),
    ),
    Bug(
        "B02",
        "a dropped connection ends the run",
        "visible",
        ("rollout/test_generate.test_failed_collect_costs_this_rollout_only",),
    ),
    Bug(
        "B03",
        "a single leaf turns trimming off",
        "impossible",
        ("rollout/test_generate.test_single_leaf_goes_by_the_policy",),
    ),
    Bug(
        "B06",
        "leaves weigh as rollouts",
        "impossible",
        ("rollout/test_rewards.test_rewards_are_normalized_per_rollout_in_any_order",),
    ),
    Bug(
        "B07",
        "siblings without a common id",
        "impossible",
        ("rollout/test_generate.test_siblings_carry_one_effective_id",),
    ),
    Bug(
        "B11",
        "an appended system message drifts",
        "impossible",
        ("rollout/session/test_prompt.test_whatever_is_appended_the_prompt_is_the_conversation_in_one_piece",),
    ),
    Bug(
        "B15",
        "requests without the adapter",
        "impossible",
        ("rollout/session/test_prompt.test_a_lora_run_names_its_adapter_in_every_request",),
    ),
    Bug("B18", "counters never collected", "impossible", ("rollout/test_assembly.test_counters_are_summed_whole",)),
    Bug(
        "B21",
        "the first turn asked again is 400 for ever",
        "impossible",
        ("rollout/session/test_linear.test_the_first_turn_can_be_asked_again",),
    ),
    Bug(
        "B23",
        "doubled headers",
        "impossible",
        ("rollout/session/test_sockets.test_each_header_stands_once_and_the_length_is_the_bodys",),
    ),
    Bug(
        "B25",
        "appended messages rendered one by one",
        "impossible",
        ("rollout/session/test_prompt.test_whatever_is_appended_the_prompt_is_the_conversation_in_one_piece",),
    ),
    Bug(
        "B27",
        "pass@k by constant group size",
        "impossible",
        ("rollout/test_metrics_rewards.test_pass_at_k_is_the_share_of_draws_with_a_solved_rollout",),
    ),
    Bug(
        "B41",
        "an error masked by another on Python 3.10",
        "impossible",
        ("rollout/test_merge.test_turn_that_does_not_continue_is_refused",),
    ),
    Bug(
        "B42",
        "a middle turn at its limit crashes assembly",
        "visible",
        ("rollout/test_assembly.test_turns_after_an_early_end_are_dropped_visibly",),
    ),
    Bug(
        "B46",
        "a cut leaves replay rows longer than ids",
        "impossible",
        ("rollout/test_replay.test_cut_leaves_a_prefix_of_the_rows",),
    ),
    Bug(
        "B49",
        "stray ids between turns",
        "impossible",
        ("rollout/session/test_prompt.test_whatever_is_appended_the_prompt_is_the_conversation_in_one_piece",),
    ),
    Bug(
        "B51",
        "a version that is no number crashes",
        "impossible",
        ("rollout/test_sample.test_engine_without_numeric_version_has_no_oldest",),
    ),
    Bug(
        "B58",
        "an appended user message is rejected",
        "impossible",
        ("rollout/session/test_prompt.test_whatever_is_appended_the_prompt_is_the_conversation_in_one_piece",),
    ),
    Bug(
        "B61",
        "chat and delete corrupt the session; a transport error is 500",
        "refused",
        (
            "rollout/session/test_interleaving.test_what_is_answered_is_kept_and_what_fails_leaves_no_trace",
            "rollout/session/test_server.test_a_session_deleted_under_a_request_answers_it_404_and_frees_the_engine",
            "rollout/session/test_server.test_an_unreachable_engine_is_502",
        ),
    ),
    Bug(
        "B62",
        "the old content length forwarded",
        "impossible",
        ("rollout/session/test_sockets.test_each_header_stands_once_and_the_length_is_the_bodys",),
    ),
    Bug(
        "B63",
        "white-space drift passes the comparison",
        "visible",
        ("rollout/test_mismatch.test_an_observation_rendered_otherwise_is_told",),
    ),
    Bug(
        "B64",
        "rows longer than the limit",
        "impossible",
        ("rollout/test_assembly.test_cut_keeps_a_prefix_and_says_so",),
    ),
    Bug(
        "B67",
        "the client's logprob flag trusted",
        "impossible",
        ("rollout/session/test_chat.test_what_recording_needs_is_set_whatever_the_client_says",),
    ),
    Bug(
        "B70",
        "prompt logprobs defeat the prefix cache",
        "impossible",
        (
            "rollout/session/test_chat.test_the_engine_is_never_asked_to_stream_or_to_start_logprobs_or_replay_rows_elsewhere",
            "rollout/direct/test_prefill.test_the_prompt_stays_in_the_cache",
        ),
    ),
    Bug(
        "B72",
        "metrics vanish from the logs",
        "impossible",
        ("rollout/test_metrics_log.test_names_of_a_training_rollout",),
    ),
    Bug(
        "B75",
        "a retried collect finds nothing",
        "impossible",
        ("rollout/session/test_samples.test_collecting_again_gives_the_same_bytes",),
    ),
    Bug(
        "B81",
        "accept length under partial rollouts",
        "impossible",
        ("rollout/direct/test_generate.test_a_rollout_that_was_broken_off_ends_as_if_it_never_was",),
    ),
    Bug("B85", "one replay row a token", "impossible", ("rollout/test_replay.test_each_sampled_id_keeps_its_own_row",)),
    Bug(
        "B87",
        "the agent's reward overwritten, counters lost in dumps",
        "impossible",
        (
            "rollout/test_selection.test_agent_metadata_reaches_each_sample_unshared",
            "rollout/test_sample.test_every_field_survives_a_dump",
        ),
    ),
    Bug(
        "B94",
        "an aborted reply without a version crashes",
        "impossible",
        ("rollout/test_known_bugs.test_a_reply_without_a_weight_version_has_none",),
    ),
    Bug(
        "B97",
        "an aborted reply without logprobs crashes",
        "visible",
        ("rollout/direct/test_generate.test_an_abort_from_the_queue_is_an_aborted_sample",),
    ),
    Bug(
        "B107",
        "truncated reported as completed",
        "impossible",
        ("rollout/test_sample.test_every_finish_reason_has_a_final_status",),
    ),
    Bug(
        "B108",
        "siblings share a budget",
        "impossible",
        ("rollout/direct/test_generate.test_siblings_never_share_sampling_parameters",),
    ),
    Bug(
        "B110", "nested lists flattened out of order", "impossible", ("rollout/test_batch.test_flattening_keeps_order",)
    ),
    Bug(
        "PR 889",
        "a refused rollback kills the session",
        "impossible",
        ("rollout/session/test_linear.test_two_generations_are_never_taken_back_and_the_refusal_harms_nothing",),
    ),
    Bug(
        "PR 2292",
        "a compacted history is refused",
        "impossible",
        ("rollout/session/test_tree.test_a_request_grows_a_branch_behind_the_deepest_history_it_begins_with",),
    ),
    Bug(
        "PR 3311",
        "a failed request rolls back",
        "impossible",
        ("rollout/session/test_linear.test_a_retry_that_fails_takes_nothing_back",),
    ),
    Bug(
        "PR 3319",
        "a cancelled rollout leaves its session",
        "impossible",
        ("rollout/test_generate.test_session_is_deleted_whenever_the_rollout_is_cancelled",),
    ),
)


def shown() -> Iterator[tuple[str, str]]:
    for bug in BUGS:
        for test in bug.tests:
            yield bug.id, test


@pytest.mark.parametrize(("id", "test"), list(shown()))
def test_the_test_that_shows_it_is_there(id: str, test: str) -> None:
    file, _, name = test.rpartition(".")
    tree = ast.parse((TESTS / f"{file}.py").read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in names


def test_each_defect_stands_once() -> None:
    ids = [bug.id for bug in BUGS]
    assert len(set(ids)) == len(ids)


def test_no_check_is_an_assert() -> None:
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            assert not isinstance(node, ast.Assert), f"{file}:{node.lineno}"


def test_a_reply_without_a_weight_version_has_none() -> None:
    sample = Sample()
    sample.observe({"prompt_tokens": 3, "completion_tokens": 0}, RolloutSettings(), "abort")
    assert (sample.weight_versions, sample.status) == ([], Status.ABORTED)
