"""A small engine that answers by rote, an agent and a job for it; the tests of a real miles, if there is one."""

import os

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from miles_sim.tokenizer import ByteTokenizer

MILES_PYTHON = "MILES_SIM_MILES_PYTHON"


def pytest_collection_modifyitems(config, items):
    """Tests of a real miles need the interpreter that has it, named by an environment variable."""
    if os.environ.get(MILES_PYTHON):
        return
    without = [item for item in items if item.get_closest_marker("miles")]
    if without:
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if item not in without]


COUNTERS = {"spec_accept_token_num": 3, "spec_draft_token_num": 6, "spec_verify_ct": 2}


class ScriptedEngine:
    """`replies`: the text of the answer, by what the last message ends with; else `done`."""

    def __init__(self, family="chatml", replies=()):
        self.tokenizer = ByteTokenizer(family)
        self.replies = dict(replies)
        self.requests = []
        self.app = Starlette(routes=[Route("/v1/chat/completions", self.chat, methods=["POST"])])

    async def chat(self, request: Request) -> JSONResponse:
        body = await request.json()
        number = len(self.requests)
        self.requests.append(body)
        asked = body["messages"][-1]["content"]
        text = next((reply for end, reply in self.replies.items() if asked.endswith(end)), "done")
        ids = [*self.tokenizer.encode(text), self.tokenizer.text_stop_id]
        meta = {
            "id": f"{number:032x}",
            "finish_reason": {"type": "stop", "matched": ids[-1]},
            "prompt_tokens": len(body["input_ids"]),
            "completion_tokens": len(ids),
            "cached_tokens": 0,
            "weight_version": "default",
            "output_token_logprobs": [[-0.5 - n / 64, token, None] for n, token in enumerate(ids)],
            **COUNTERS,
        }
        message = {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "meta_info": meta}
        return JSONResponse({"id": meta["id"], "object": "chat.completion", "choices": [choice]})


def chat_agent(client, turns=("hello", "go on")):
    """An agent that says `turns` one after the other, and returns their number as its metadata."""

    async def agent(rollout, base_url, request_kwargs, metadata):
        messages = [{"role": "system", "content": "be brief"}]
        for text in turns:
            messages.append({"role": "user", "content": text})
            response = await client.post(
                f"{base_url}/v1/chat/completions", json={"messages": messages, "model": "sim", **request_kwargs}
            )
            response.raise_for_status()
            messages.append(response.json()["choices"][0]["message"])
        return {"turns": len(turns), "reward": float(rollout)}

    return agent


def make_job(engine_url, folder, *, session="v1", inputs=({"index": 7},), family="chatml", **fields):
    tokenizer = ByteTokenizer(family)
    empty = {"index": None, "rollout_id": None, "group_index": 0, "label": None, "metadata": {}, "reward": None}
    return {
        "session": session,
        "engine_url": engine_url,
        "tokenizer": family,
        "tokenizer_folder": str(tokenizer.save(folder)),
        "tito": tokenizer.family.miles_tito,
        "inputs": [{**empty, **values} for values in inputs],
        "sampling": [{"max_new_tokens": 16, "temperature": 1.0, "sampling_seed": n} for n in range(len(inputs))],
        "max_seq_len": None,
        "speculative_algorithm": "EAGLE",
        "routing_replay": False,
        "routed_experts_layers": 1,
        "routed_experts_topk": 1,
        "batch": {"global_batch_size": None, "dp_size": 1, "normalize": "std", "rewards": "rollout"},
        **fields,
    }


@pytest.fixture
def scripted_engine():
    """The class of a `ScriptedEngine`; each answer is one word and a stop token, its counters are `COUNTERS`."""
    return ScriptedEngine


@pytest.fixture
def agent_of():
    """`agent_of(client, turns)`: an agent function; `reward` of its metadata is the number of its rollout."""
    return chat_agent


@pytest.fixture
def job_for(tmp_path):
    """`job_for(engine_url, session="v1", inputs=…, family=…)`: a `Job`."""
    return lambda engine_url, **fields: make_job(engine_url, tmp_path, **fields)
