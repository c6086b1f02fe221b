"""What a request asks of the template reaches the prompt: its options, its tool list."""

from typing import Any

import pytest

from miles_sim.rollout.sample import Sample
from miles_sim.rollout.wire import decode_samples
from miles_sim.tokenizer import ByteTokenizer

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
RESPELLED = [{"function": {"parameters": {"properties": {}, "type": "object"}, "name": "f"}, "type": "function"}]


class Thinking(ByteTokenizer):
    """A template that opens the reply by `enable_thinking` and `reasoning_effort`."""

    def render_text(self, messages: Any, *, template_options: Any = None, **options: Any) -> str:
        text = super().render_text(messages, **options)
        return text + "".join(f"[{name}={value}]" for name, value in sorted((template_options or {}).items()))


def prompts(sessions: Any) -> list[str]:
    return [sessions.engine.tokenizer.decode(body["input_ids"]) for body in sessions.engine.bodies]


@pytest.mark.parametrize("session", ["v1", "v2"])
async def test_template_options_reach_each_prompt_and_only_that_one(opened: Any, user: Any, session: str) -> None:
    sessions = await opened(Thinking(), session=session, template_options={"a": 1})
    first = await sessions.say(user("one"), chat_template_kwargs={"enable_thinking": False, "a": 2})
    second = await sessions.say(user("one"), first, user("two"), reasoning_effort="low")
    await sessions.say(user("one"), first, user("two"), second, user("three"))
    one, two, three = prompts(sessions)
    assert one.endswith("[a=2][enable_thinking=False]")
    assert two.endswith("[a=1][reasoning_effort=low]")
    assert two.count("enable_thinking") == 1
    assert three.endswith("assistant\n[a=1]")
    assert sessions.engine.bodies[0]["chat_template_kwargs"] == {"enable_thinking": False, "a": 2}


@pytest.mark.parametrize("session", ["v1", "v2"])
async def test_the_same_tools_in_another_spelling_continue_the_prompt(opened: Any, user: Any, session: str) -> None:
    sessions = await opened(session=session)
    first = await sessions.say(user("one"), tools=TOOLS)
    await sessions.say(user("one"), first, user("two"), tools=RESPELLED)
    one, two = prompts(sessions)
    assert '"name": "f"' in one
    assert two.startswith(one)


async def test_other_tools_open_a_root_whose_prompt_has_them(opened: Any, user: Any) -> None:
    sessions = await opened()
    first = await sessions.say(user("one"), tools=TOOLS)
    second = await sessions.say(user("one"), first, user("two"))
    await sessions.say(user("one"), first, user("two"), second, user("three"))
    await sessions.say(user("one"), first, user("aside"), tools=TOOLS)
    assert ["<tools>" in prompt for prompt in prompts(sessions)] == [True, False, False, True]
    tree = (await sessions.show())["metadata"]["tree"]
    assert [node["parent"] for node in tree["nodes"]] == [None, None, 1, 0]


async def test_another_list_of_tools_is_another_prompt(opened: Any, user: Any) -> None:
    """Not only tools against none."""
    others = [{"type": "function", "function": {"name": "g"}}]
    v2, v1 = await opened(), await opened(session="v1")
    for sessions, status in ((v2, 200), (v1, 400)):
        first = await sessions.say(user("one"), tools=TOOLS)
        assert (await sessions.chat(user("one"), first, user("two"), tools=others)).status_code == status
        assert (await sessions.chat(user("one"), first, user("two"), tools=TOOLS)).status_code == 200
    nodes = (await v2.show())["metadata"]["tree"]["nodes"]
    assert [node["parent"] for node in nodes] == [None, None, 0]
    assert ['"name": "g"' in prompt for prompt in prompts(v2)][:3] == [False, True, False]


async def test_other_tools_are_refused_where_there_is_one_prompt_only(opened: Any, user: Any) -> None:
    sessions = await opened(session="v1")
    first = await sessions.say(user("one"), tools=TOOLS)
    response = await sessions.chat(user("one"), first, user("two"))
    assert response.status_code == 400
    assert response.json()["error"].startswith("tools: not those that generation 0 was asked with")
    await sessions.say(user("one"), first, user("two"), tools=TOOLS)
    assert await sessions.texts() == ["r1", "r2"]


async def test_a_first_turn_asked_again_may_have_other_tools(opened: Any, user: Any) -> None:
    sessions = await opened(session="v1")
    await sessions.say(user("one"), tools=TOOLS)
    await sessions.say(user("one"))
    assert ["<tools>" in prompt for prompt in prompts(sessions)] == [True, False]


@pytest.mark.parametrize("session", ["v1", "v2"])
async def test_the_stored_prompt_is_kept_if_the_policy_says_so(opened: Any, user: Any, session: str) -> None:
    sessions = await opened(session=session, tools_change="keep")
    first = await sessions.say(user("one"), tools=TOOLS)
    await sessions.say(user("one"), first, user("two"))
    one, two = prompts(sessions)
    assert two.startswith(one)


async def test_a_lora_run_names_its_adapter_in_every_request(opened: Any, user: Any) -> None:
    sessions = await opened(lora_path="policy")
    first = await sessions.say(user("one"))
    await sessions.say(user("one"), first, user("two"), lora_path="another")
    assert [body["lora_path"] for body in sessions.engine.bodies] == ["policy", "policy"]


@pytest.mark.parametrize("session", ["v1", "v2"])
@pytest.mark.parametrize("family", ["chatml", "delimiter"])
@pytest.mark.parametrize("roles", ["user", "tool", "system", "tool tool", "tool tool user", "system user"])
async def test_whatever_is_appended_the_prompt_is_the_conversation_in_one_piece(
    opened: Any, user: Any, family: str, session: str, roles: str
) -> None:
    sessions = await opened(ByteTokenizer(family), session=session)
    asked = [user("one")]
    for turn in range(3):
        asked += [await sessions.say(*asked), *({"role": role, "content": f" {turn}\n"} for role in roles.split())]
    await sessions.say(*asked)
    tokenizer = sessions.engine.tokenizer
    assert sessions.engine.bodies[-1]["input_ids"] == tokenizer.render(asked)
    payload = (await sessions.client.post(sessions.url + "/samples")).content
    (sample,) = decode_samples(payload, Sample(index=1), session=session).samples  # type: ignore[arg-type]
    assert "tito_session_mismatch" not in sample.metadata


class Drifting(ByteTokenizer):
    """Writes the second id of every history otherwise than it was."""

    def extend(self, *given: Any, **options: Any) -> list[int]:
        first, second, *rest = super().extend(*given, **options)
        return [first, second + 1, *rest]


async def test_a_prompt_that_changes_what_was_sampled_is_500_at_the_id_that_differs(opened: Any, user: Any) -> None:
    sessions = await opened(Drifting("chatml"))
    reply = await sessions.say(user("one"))
    stored = len((await sessions.show())["metadata"]["accumulated_token_ids"])
    response = await sessions.chat(user("one"), reply, user("two"))
    assert response.status_code == 500
    assert response.json()["error"].startswith(f"input_ids[1]: differ from the {stored} stored ids")
    assert len((await sessions.show())["records"]) == 1
