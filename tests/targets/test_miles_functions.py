"""Functions of ours under dotted paths, as miles looks for the user's."""

import importlib
import sys
import types

import pytest

from miles_sim.targets.miles_functions import MODULE, PICKER, POSTPROCESSOR, Rollouts, functions, paths


def at(path):
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.fixture
def calls():
    return []


@pytest.fixture
def agent(calls):
    async def agent(rollout, base_url, request_kwargs, metadata):
        calls.append((rollout, base_url, request_kwargs, metadata))
        return {"content": "42 lines"}

    return agent


async def test_the_agent_function_is_told_its_rollout(agent, calls):
    rollouts = Rollouts()
    with functions({}, agent, rollouts):
        rollouts.enter(3)
        run = at(paths({})["custom_agent_function_path"])
        await run(base_url="http://s/1", prompt="", request_kwargs={"seed": 1}, metadata={"a": 1}, more=True)
    assert calls == [(3, "http://s/1", {"seed": 1}, {"a": 1})]
    assert rollouts.ran == {3}


async def test_a_tool_of_a_direct_play_is_the_agent(agent, calls):
    job, rollouts = {"direct": {"tools": [{"type": "function"}], "parser": "qwen25", "max_turns": 3}}, Rollouts()
    with functions(job, agent, rollouts):
        rollouts.enter(1)
        assert at(paths(job)["generate_tool_specs_path"]) == [{"type": "function"}]
        assert await at(paths(job)["generate_execute_tool_function_path"])("ls", {"path": "."}) == "42 lines"
    assert calls == [(1, "", {"name": "ls", "arguments": {"path": "."}}, {})]


def test_without_hooks_miles_own_are_named(agent):
    found = paths({"hooks": {"picker": "default", "postprocessor": "default"}})
    assert found == paths({})
    assert (found["session_sample_picker_path"], found["session_sample_postprocessor_path"]) == (PICKER, POSTPROCESSOR)


def test_hooks_are_ours_and_finish_with_miles_own(agent, monkeypatch):
    own = types.ModuleType("own")
    own.default_postprocess = lambda samples, metadata: samples
    monkeypatch.setitem(sys.modules, POSTPROCESSOR.rpartition(".")[0], own)
    job = {"hooks": {"picker": "none", "postprocessor": "marks"}}
    sample = types.SimpleNamespace(metadata={})
    with functions(job, agent, Rollouts()):
        assert at(paths(job)["session_sample_picker_path"])([sample], {}) == []
        assert at(paths(job)["session_sample_postprocessor_path"])([sample], {}) == [sample]
    assert sample.metadata == {"marked": True}


def test_nothing_is_left_when_the_play_is_over(agent):
    with functions({}, agent, Rollouts()):
        assert MODULE in sys.modules
    assert MODULE not in sys.modules
