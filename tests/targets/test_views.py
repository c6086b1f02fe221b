"""Samples of any implementation as observation documents."""

from types import SimpleNamespace

from miles_sim.document import read
from miles_sim.rollout.counters import SpecInfo
from miles_sim.rollout.sample import Sample, Status
from miles_sim.targets.base import SAMPLE_FIELDS
from miles_sim.targets.observation import RolloutView, SampleView
from miles_sim.targets.views import figures, groups_of, rollout_view, sample_view


def test_the_fields_of_a_sample_are_those_of_its_view():
    assert set(SAMPLE_FIELDS) == set(SampleView.model_fields) - {"other"}


def test_a_sample_fits_its_document_and_further_fields_stand_in_other():
    sample = Sample(index=0, tokens=[1, 2], status=Status.COMPLETED, teacher_log_probs=[-1.0])
    view = read(SampleView, sample_view(sample), name="sample")
    assert (view.index, view.tokens, view.status) == (0, (1, 2), "completed")
    assert view.other == {"teacher_log_probs": [-1.0]}


def test_wall_clock_times_of_the_lifecycle_are_left_out():
    lifecycle = [{"turn": 1, "t1": 1.7e9, "latency": 0.5, "span": [3, 4]}]
    sample = Sample(metadata={"lifecycle": lifecycle, "when": 1.7e9})
    assert sample_view(sample)["metadata"] == {
        "lifecycle": [{"turn": 1, "t1": None, "latency": 0.5, "span": [3, 4]}],
        "when": 1.7e9,
    }
    assert lifecycle[0]["t1"] == 1.7e9


def test_ratios_are_those_that_the_target_states():
    class Stated:
        spec_accept_token_num, spec_draft_token_num, spec_verify_ct, completion_token_num = 1, 2, 3, 4
        spec_accept_rate, spec_accept_length = 0.0, 9.0

    ours = sample_view(Sample(spec_info=SpecInfo(1, 2, 3, 4)))["spec_info"]
    assert (ours["accept_rate"], ours["accept_length"]) == (0.5, 4 / 3)
    theirs = sample_view(Sample(spec_info=Stated()))["spec_info"]
    assert (theirs["accept_rate"], theirs["accept_length"]) == (0.0, 9.0)


def test_an_unavailable_ratio_stays_unavailable():
    assert sample_view(Sample())["spec_info"]["accept_rate"] is None


def test_counters_are_found_under_the_engines_names_too():
    engines = SimpleNamespace(
        spec_num_correct_drafts=1, spec_num_proposed_drafts=2, spec_verify_ct=3, completion_tokens=4
    )
    found = sample_view(Sample(spec_info=engines))["spec_info"]
    assert [count for name, count in found.items() if not name.startswith("accept_")] == [1, 2, 3, 4]


def test_a_rollout_tells_list_from_single_and_changes_of_its_input():
    sample = Sample(index=1)
    before = sample_view(sample)
    sample.index = 2
    single = read(RolloutView, rollout_view(before, sample, Sample(), agent_ran=True), name="r")
    assert (single.returned, single.input.index, single.input_after.index) == ("single", 1, 2)
    several = read(RolloutView, rollout_view(before, sample, [Sample(), Sample()], agent_ran=True), name="r")
    assert (several.returned, len(several.samples)) == ("list", 2)


def test_a_rollout_that_raised_has_its_error_and_no_samples():
    view = rollout_view(sample_view(Sample()), Sample(), None, agent_ran=False, error=KeyError("index"))
    found = read(RolloutView, view, name="r")
    assert found.error is not None
    assert (found.error.type, found.error.bases[0]) == ("KeyError", "LookupError")
    assert (found.returned, found.samples) == (None, ())


def test_the_batch_is_grouped_by_prompt_in_order():
    a, b, c, d = (Sample(group_index=g) for g in (0, 0, 1, None))
    assert groups_of([[a], [b, b], None, c, d]) == [[[a], [b, b]], [c], [d]]


def test_figures_are_numbers_under_one_prefix():
    assert figures({"a": 1, "rollout/b": 0.5, "c": "text", "d": None}) == {"rollout/a": 1.0, "rollout/b": 0.5}


def test_a_list_that_holds_what_it_is_not_for_stands_in_other():
    sample = Sample(index=7, tokens=[1, 2], response_length=1, rollout_log_probs=[None])
    view = sample_view(sample)
    assert "rollout_log_probs" not in view
    assert view["other"]["rollout_log_probs"] == [None]
    assert view["tokens"] == [1, 2]
    assert read(SampleView, view, name="sample").rollout_log_probs is None


def test_counters_that_are_no_numbers_stand_in_other():
    names = ("spec_accept_token_num", "spec_draft_token_num", "spec_verify_ct", "completion_token_num")
    view = sample_view(Sample(index=7, spec_info=SimpleNamespace(**dict.fromkeys(names, "4"))))
    assert "spec_info" not in view
    assert view["other"]["spec_info"]["spec_verify_ct"] == "4"
    assert view["prefix_cache_info"] == {"cached_tokens": 0, "total_prompt_tokens": 0}
