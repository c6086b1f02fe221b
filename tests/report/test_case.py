"""A case as text: what a person must find in it, and what must never be in it."""

from typing import Any

from miles_sim.report.case import case_text
from miles_sim.report.samples import aligned, segments
from miles_sim.scenarios.model import Scenario
from miles_sim.targets.observation import Error
from miles_sim.tokenizer import ByteTokenizer
from miles_sim.verify.rule import Case


def _with_view(case: Case, **update: Any) -> Case:
    view = case.observation.rollouts[0].model_copy(update=update)
    return Case(
        case.scenario, case.session, case.ledger, case.observation.model_copy(update={"rollouts": (view,)}), frozenset()
    )


def _with_sample(case: Case, **update: Any) -> Case:
    first, *rest = case.observation.rollouts[0].samples
    return _with_view(case, samples=(first.model_copy(update=update), *rest))


def test_the_text_is_short_and_narrow_enough_to_read(case: Case) -> None:
    lines = case_text(case).splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 120
    assert all(line == line.rstrip() for line in lines)


def test_a_sample_shows_who_wrote_what_and_what_is_trained(case: Case) -> None:
    text = case_text(case)
    rows = [line.split() for line in text.splitlines()]
    assert ["2r", "right<|im_end|>", "6", "1×6"] in rows
    assert any(row[:1] == ["context"] and row[-1] == "0×26" for row in rows)
    assert any(row[:1] == ["prompt"] and row[-2:] == ["27", "–"] for row in rows)


def test_every_id_of_a_sample_stands_in_one_segment(case: Case) -> None:
    (rollout,) = case.rollouts
    for sample in rollout.samples:
        parts = segments(aligned(sample, rollout, ByteTokenizer()), {})
        assert [part.start for part in parts] == [0, *(part.end for part in parts[:-1])]
        assert parts[-1].end == len(sample.tokens)


def test_a_mask_that_is_off_by_one_shows(case: Case) -> None:
    mask = case.observation.rollouts[0].samples[0].loss_mask
    assert mask is not None
    text = case_text(_with_sample(case, loss_mask=(0, *mask[:-1])))
    assert "0×1 1×8" in text
    assert "1×1 0×25" in text


def test_a_counter_that_lies_stands_beside_the_truth(case: Case) -> None:
    told = case.observation.rollouts[0].samples[0].spec_info
    assert told is not None
    text = case_text(
        _with_sample(case, spec_info=told.model_copy(update={"spec_draft_token_num": 0, "accept_rate": 0.0}))
    )
    assert "drafted 0 (true: 18)" in text
    assert "accept rate 0 (true: 0.4444)" in text


def test_a_trimmed_reply_says_how_much_is_left_out(case: Case) -> None:
    sample = case.observation.rollouts[0].samples[2]
    shorter = sample.model_copy(
        update={
            "tokens": sample.tokens[:-1],
            "response_length": 10,
            "loss_mask": sample.loss_mask and sample.loss_mask[:-1],
        }
    )
    text = case_text(_with_view(case, samples=(shorter,)))
    assert "1×10 (1 more left out)" in text


def test_an_error_shows_without_address_or_session(case: Case) -> None:
    message = "POST http://127.0.0.1:45678/sessions/0f8fad5bd9cb469fa16570867728950e: refused"
    text = case_text(
        _with_view(case, samples=(), error=Error(type="RolloutIdentityError", message=message), agent_ran=False)
    )
    assert "RolloutIdentityError (before the agent ran): POST ‹url› refused" in text
    assert "45678" not in text
    assert "0f8fad5b" not in text


def test_ids_outside_the_vocabulary_are_reported_not_raised(case: Case) -> None:
    text = case_text(_with_sample(case, tokens=(999_999,) * 50, response_length=41))
    assert "token id: 999999" in text


def test_a_refused_batch_says_by_what(case: Case) -> None:
    assert case.observation.batch is not None
    batch = case.observation.batch.model_copy(update={"error": Error(type="ValueError", message="two ids")})
    refused = Case(case.scenario, case.session, case.ledger, case.observation.model_copy(update={"batch": batch}))
    assert "refused by ValueError: two ids" in case_text(refused)


def test_a_thousand_rollouts_stay_short_and_are_pinned_all_the_same(case: Case) -> None:
    def many(last_status: str) -> str:
        view = case.observation.rollouts[0]
        other = view.samples[0].model_copy(update={"status": last_status})
        views = (*[view] * 999, view.model_copy(update={"samples": (other,)}))
        scenario = case.scenario.model_copy(update={"rollouts": case.scenario.rollouts * 1000})
        return case_text(
            Case(scenario, case.session, case.ledger, case.observation.model_copy(update={"rollouts": views}))
        )

    assert len(many("completed").splitlines()) <= 110
    assert many("completed") != many("truncated")


def test_steps_that_the_agent_did_not_come_to_are_named(case: Case) -> None:
    plan = {"steps": [{"do": "say", "key": "1"}, {"do": "say", "key": "late"}]}
    scenario = Scenario.model_validate({"name": "cut", "title": "Cut short", "plan": plan})
    assert "never asked: late" in case_text(Case(scenario, case.session, case.ledger, case.observation))


def test_what_the_agent_raised_is_told(case: Case) -> None:
    error = {"type": "AgentCrash", "message": "gone at http://127.0.0.1:1/sessions/x"}
    assert "AgentCrash: gone at ‹url›" in case_text(_with_sample(case, metadata={"agent_error": error}))
