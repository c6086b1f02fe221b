"""Answers from a template are those of the general way, byte for byte."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from miles_sim.engine import profiles, template
from miles_sim.engine.engine import Engine
from miles_sim.engine.flight import at_once
from miles_sim.engine.settings import EngineSettings
from miles_sim.tokenizer import ByteTokenizer

Make = Callable[..., Engine]
TOKENIZER = ByteTokenizer("chatml")
RULES = [
    {"contains": "break", "reply": {"tokens": 9, "abort_after": 5}},
    {"contains": "retract", "reply": {"tokens": 9, "retract_after": 5}},
    {"contains": "update", "reply": {"tokens": 9, "update": {"after": 4}}},
    {"contains": "nothing", "reply": {"tokens": 0}},
    {"contains": "short", "reply": {"tokens": 3}},
    {"contains": "wide", "reply": {"text": 'é 字 🙂 "quoted" \\ mark text'}},
]
FRAMES: list[dict[str, Any]] = [
    {"logprobs": True, "return_meta_info": True},
    {"logprobs": True, "return_meta_info": True, "max_tokens": 6, "stop": ["e"]},
    {"logprobs": True, "max_tokens": 8},
    {"return_meta_info": True, "max_tokens": 8, "stop_token_ids": list(range(300, 640))},
    {"return_meta_info": True, "max_tokens": 1},
    {"max_tokens": 5, "skip_special_tokens": False, "no_stop_trim": True},
    {"logprobs": True, "top_logprobs": 2},
    {"n": 2},
    {"rid": "mine"},
    {"return_token_ids": True, "return_input_ids_in_sglext": True, "return_cached_tokens_details": True},
    {"tools": [{"type": "function", "function": {"name": "look"}}]},
    {"ignore_eos": True, "max_tokens": 30},
]
TEXTS = (
    "hello",
    "short",
    "nothing",
    "break",
    "retract",
    "update",
    "wide",
    "hello",
    "short",
    "wide",
    "other",
    "other end",
)


def body(text: str, frame: dict[str, Any]) -> bytes:
    messages = [{"role": "user", "content": text}]
    ids = TOKENIZER.render(messages) + [97] * text.endswith("end")
    return json.dumps({"messages": messages, "input_ids": ids, **frame}).encode()


def answers(engine: Engine, frames: list[dict[str, Any]] = FRAMES) -> list[bytes]:
    return [at_once(engine.chat(body(text, frame))) for frame in frames for text in TEXTS]


@pytest.mark.parametrize("profile", profiles.names())
@pytest.mark.parametrize(
    "settings",
    [{}, {"cache_report": True}, {"speculative": {}}, {"experts": {}}, {"metrics": True}, {"tokenizer": "qwen3"}],
    ids=str,
)
def test_a_known_frame_is_answered_as_a_strange_one(
    monkeypatch: pytest.MonkeyPatch, profile: str, settings: dict[str, Any]
) -> None:
    def engine() -> Engine:
        return Engine(EngineSettings.model_validate({"profile": profile, "rules": RULES, **settings}), seed=4)

    quick = engine()
    told = answers(quick)
    with monkeypatch.context() as patch:
        patch.setattr("miles_sim.engine.serving.asks_little", lambda *asked: False)
        whole = engine()
        expected = answers(whole)
    assert told == expected
    assert quick.generations == whole.generations


def test_a_release_with_ids_on_chat_may_tell_nothing_as_null_and_the_last_prompt_id_among_logprobs(
    make_engine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def engine() -> Engine:
        made = make_engine(rules=RULES)
        profile = made.profile
        made.profile = profile.model_copy(
            update={
                "chat": profile.chat.model_copy(update={"empty_content": "null"}),
                "generate": profile.generate.model_copy(update={"default_input_logprobs": "last"}),
            }
        )
        return made

    told = answers(engine())
    monkeypatch.setattr("miles_sim.engine.serving.asks_little", lambda *asked: False)
    assert told == answers(engine())


def test_most_answers_of_a_plain_frame_are_made_from_a_template(
    make_engine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled: list[object] = []
    fill = template.Template.filled

    def noted(self: template.Template, values: Any) -> bytes:
        filled.append(values)
        return fill(self, values)

    monkeypatch.setattr(template.Template, "filled", noted)
    for _ in range(3):
        at_once(make_engine().chat(body("x", FRAMES[0])))
    assert not filled
    engine = make_engine()
    for n in range(20):
        at_once(engine.chat(body(f"hello {n}", FRAMES[0])))
    assert len(filled) == 19  # the second one is made the long way, too, and compared


def test_a_template_that_gives_other_bytes_is_not_taken(make_engine: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, other = make_engine(), make_engine()
    monkeypatch.setattr(template.Template, "filled", lambda self, values: b"{}")
    told = [at_once(engine.chat(body(f"hello {n}", FRAMES[0]))) for n in range(5)]
    monkeypatch.undo()
    assert told == [at_once(other.chat(body(f"hello {n}", FRAMES[0]))) for n in range(5)]


def test_headers_that_change_an_answer_count_for_a_known_frame_too(make_engine: Make) -> None:
    engine = make_engine(profile="sglang-0.5.23")
    for _ in range(3):
        at_once(engine.chat(body("hello", FRAMES[0])))
    said = at_once(
        engine.serving.chat(
            body("hello", FRAMES[0]),
            content_type="application/json",
            headers={"x-sglext-return-input-ids": "1"},
        )
    )
    assert isinstance(said, bytes)
    assert "input_ids" in json.loads(said)["sglext"]


def test_so_many_templates_are_kept_of_a_frame(make_engine: Make) -> None:
    engine = make_engine()
    for _ in range(3 * template.MOST):
        at_once(engine.chat(body("hello", FRAMES[0] | {"stop_token_ids": list(range(300, 780))})))
    (frame,) = engine.serving._frames._frames.values()
    assert frame.templates is not None
    assert 1 < len(frame.templates._known) <= template.MOST
