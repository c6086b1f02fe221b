"""The measured work as both sides get it, and miles' side of it; run by the interpreter that has miles.

    PYTHON miles_side.py merge|attach|rollout [CHECKOUT] < JOB > FIGURES

Standard library and miles only; miles-sim's own side imports the same functions from here. JOB and FIGURES are JSON.
What miles prints goes to the standard error stream.
"""

import asyncio
import gc
import importlib
import json
import os
import socket
import sys
import time
import types
from collections.abc import Callable
from typing import Any

SAMPLED, ASKED = 100, 100
"""Ids of one turn of a conversation to merge: 256 turns make 51,200."""
REPLY_IDS = [ord(letter) for letter in "it is done, as far as it can be"]


class Bytes:
    """A tokenizer that only decodes, at next to no cost: it is not what is measured."""

    def decode(self, ids: Any, **_: Any) -> str:
        return bytes(ids).decode("latin-1")


def turn_fields(turns: int) -> list[dict[str, Any]]:
    """Fields of one sample a turn; each one's ids begin with those of the one before."""
    ids: list[int] = []
    made = []
    for turn in range(turns):
        ids = ids + [(turn * 7 + n) % 256 for n in range(ASKED)]
        said = [(turn * 11 + n) % 256 for n in range(SAMPLED)]
        ids = ids + said
        made.append(
            {
                "index": 1,
                "tokens": ids,
                "response": Bytes().decode(said),
                "response_length": SAMPLED,
                "loss_mask": [1] * SAMPLED,
                "rollout_log_probs": [-n / SAMPLED for n in range(SAMPLED)],
                "weight_versions": ["1"],
                "metadata": {"lifecycle": {"turn": turn, "latency": 0.5}},
            }
        )
    return made


def best(work: Callable[[], Any], *, seconds: float) -> float:
    """The least seconds of this process that one call takes, over calls of about `seconds` in all; one at least.

    Time of the process, and without a garbage collector that walks what the bench itself holds: other work on the
    machine, and in the process, is no figure of what is measured.
    """
    found, spent = float("inf"), 0.0
    gc.collect()
    gc.disable()
    try:
        while spent < seconds:
            begin = time.process_time()
            work()
            took = time.process_time() - begin
            found, spent = min(found, took), spent + took
    finally:
        gc.enable()
    return found


async def agent(client: Any, base_url: str) -> None:
    """Five generations, two leaves: three turns, and a subagent of two from the second one's spot."""
    history: list[Any] = [{"role": "user", "content": "plan it"}]
    history += [await _say(client, base_url, history), {"role": "user", "content": "work on it"}]
    fork = [*history[:2], {"role": "user", "content": "look aside"}]
    history += [await _say(client, base_url, history), {"role": "user", "content": "finish it"}]
    await _say(client, base_url, history)
    fork += [await _say(client, base_url, fork), {"role": "user", "content": "and further"}]
    await _say(client, base_url, fork)


async def _say(client: Any, base_url: str, messages: list[Any]) -> Any:
    body = {"model": "bench", "messages": messages, "max_tokens": 64}
    response = await client.post(base_url + "/v1/chat/completions", json=body, timeout=60)
    if response.status_code != 200:
        raise RuntimeError(f"chat: status {response.status_code}: {response.text[:500]}")
    return response.json()["choices"][0]["message"]


class Engine:
    """Chat completions without a thought: the same reply for everything, numbered. An ASGI app."""

    def __init__(self, stop: int) -> None:
        self._replies = 0
        output = [*REPLY_IDS, stop]
        self._text = "".join(map(chr, REPLY_IDS))
        self._logprobs = json.dumps([[-0.25, token, None] for token in output])
        self._count = len(output)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        parts, more = [], True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        body = self._reply(len(json.loads(b"".join(parts))["input_ids"]))
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _reply(self, prompt: int) -> bytes:
        self._replies += 1
        id = f"{self._replies:032x}"
        return (
            f'{{"id": "{id}", "object": "chat.completion", "created": 1, "model": "bench", "choices": [{{"index": 0, '
            f'"message": {{"role": "assistant", "content": {json.dumps(self._text)}, "tool_calls": null}}, '
            f'"finish_reason": "stop", "meta_info": {{"id": "{id}", "prompt_tokens": {prompt}, '
            f'"completion_tokens": {self._count}, "cached_tokens": 0, "weight_version": "1", '
            f'"output_token_logprobs": {self._logprobs}}}}}], '
            f'"usage": {{"prompt_tokens": {prompt}, "completion_tokens": {self._count}}}}}'
        ).encode()


def merge(job: dict[str, Any]) -> list[float]:
    """Seconds of miles' `merge_samples` for each number of turns in `job`."""
    sample = importlib.import_module("miles.utils.types").Sample
    merging = importlib.import_module("miles.rollout.generate_utils.sample_utils").merge_samples
    seconds = []
    for turns in job["turns"]:
        names = sample.__dataclass_fields__
        made = [
            sample(status=sample.Status.COMPLETED, **{name: v for name, v in fields.items() if name in names})
            for fields in turn_fields(turns)
        ]
        try:
            merged = merging(made, Bytes())
        except AssertionError:  # of a release that merges nothing but equal metadata, as miles-rl 0.0.2
            for turn in made:
                turn.metadata = {}
            merged = merging(made, Bytes())
        if len(merged.tokens) != turns * (ASKED + SAMPLED):
            raise RuntimeError(f"miles merged {turns} turns into {len(merged.tokens)} ids")
        seconds.append(best(lambda made=made: merging(made, Bytes()), seconds=job["seconds"]))  # type: ignore[misc]
    return seconds


def attach(job: dict[str, Any]) -> list[float] | None:
    """Seconds of finding a request's place in miles' session tree; None where it has no tree sessions."""
    if "session.v2" in _adapter(job["adapter"]).find_release().absent:
        return None
    tree = importlib.import_module("miles.rollout.session.v2.tree_trajectory")
    seconds = []
    for nodes in job["nodes"]:
        held, root = tree.SessionTree(), None
        for number in range(nodes):
            asked, said = turn_messages(number)
            made = held.create_node(
                root,
                delta_messages=[asked, said],
                token_ids=[],
                completion_span=(0, 0),
                committed_at=0.0,
                response_id=str(number),
                record=None,
                finish_reason="stop",
            )
            root = root or made
        request = attach_request(nodes)
        found = held.find_attach_point(request)
        if found.node is None or found.node.seq != nodes // 2:
            raise RuntimeError(f"miles attached a request to {found.node}")
        seconds.append(best(lambda held=held, request=request: held.find_attach_point(request), seconds=job["seconds"]))  # type: ignore[misc]
    return seconds


def turn_messages(number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What node `number` of a tree was asked, and said."""
    asked = {"role": "user", "content": f"question {number}"}
    return asked, {"role": "assistant", "content": f"answer {number}", "tool_calls": None}


def attach_request(nodes: int) -> list[dict[str, Any]]:
    """A request behind the node in the middle of a root and its `nodes - 1` children."""
    return [*turn_messages(0), *turn_messages(nodes // 2), {"role": "user", "content": "further"}]


def rollout(job: dict[str, Any]) -> float | None:
    """Rollouts a second of miles' `generate` and session server; None where it has no tree sessions."""
    adapter = _adapter(job["adapter"])
    release = adapter.find_release()
    if "session.v2" in release.absent:
        return None
    return asyncio.run(_rollouts(adapter, release, job))


def _adapter(folder: str) -> Any:
    """miles-sim's adapter of miles, a module that needs miles and the standard library only."""
    package = types.ModuleType("miles_sim_adapter")
    package.__path__ = [folder]
    sys.modules[package.__name__] = package
    return importlib.import_module("miles_sim_adapter.miles")


async def _rollouts(adapter: Any, release: Any, job: dict[str, Any]) -> float:
    import httpx

    with socket.socket() as listener, adapter.listener(0) as sessions:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        async with adapter.served(Engine(job["stop"]), listener):
            engine_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            url = f"http://127.0.0.1:{sessions.getsockname()[1]}"
            asked = {**job["job"], "engine_url": engine_url}
            args = adapter.arguments(asked, checkpoint=job["tokenizer"], session_url=url)
            server = release.session_server(args, engine_url)
            tokenizer = release.load_tokenizer(args.hf_checkpoint, chat_template_path=None, trust_remote_code=True)
            state = types.SimpleNamespace(args=args, tokenizer=tokenizer, processor=None)
            async with (
                adapter.served(server.app, sessions),
                adapter.http_client(release.http_utils, args),
                httpx.AsyncClient() as client,
            ):

                async def play(number: int, base_url: str, request_kwargs: Any, metadata: Any) -> dict[str, Any]:
                    await agent(client, base_url)
                    return {"reward": 1.0}

                async def one() -> int:
                    sample = release.new_sample({"prompt": "", "index": 1})
                    request = release.generate_input(
                        state=state, sample=sample, sampling_params={"max_new_tokens": 64}, evaluation=False
                    )
                    return len((await release.generate(request)).samples)

                rollouts = adapter.Rollouts()
                rollouts.enter(0)
                with adapter.functions(job["job"], play, rollouts):
                    return await rate(one, seconds=job["seconds"])


async def rate(one: Callable[[], Any], *, seconds: float) -> float:
    """Calls a second of `one`, one after the other."""
    await one()
    begin, done = time.perf_counter(), 0
    while (spent := time.perf_counter() - begin) < seconds or done < 2:
        await one()
        done += 1
    return done / spent


def main(kind: str, checkout: str | None = None) -> None:
    """Measure `kind` as the job on the standard input says."""
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path[0:1] = [] if checkout is None else [checkout]
    figures = {"merge": merge, "attach": attach, "rollout": rollout}[kind](json.load(sys.stdin))
    json.dump(figures, said)
    said.flush()
    os._exit(0)  # what miles leaves running ends with it


if __name__ == "__main__":
    main(*sys.argv[1:])
