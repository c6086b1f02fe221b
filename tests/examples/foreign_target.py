"""Another implementation under contract: one recorder in front of the engine for each rollout, linear only.

Named as `--target foreign_target:ForeignTarget`. Shown in docs/targets.md.
"""

import asyncio
import platform
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from miles_sim.targets.base import CAPABILITIES, AgentFunction, Job, TargetInfo
from miles_sim.tokenizer import ByteTokenizer
from miles_sim.transport import serve

CAN = ["session.v1", "weight_versions"]
CANNOT = {
    "session.v2": "a recorder keeps one line of history",
    "identity": "samples are grouped by their index",
    "spec_info": "speculative counters are not collected",
}
STATUS = {"stop": "completed", "tool_calls": "completed", "length": "truncated", "abort": "aborted"}
CHAT_NAMES = {"max_new_tokens": "max_tokens", "sampling_seed": "seed"}


@dataclass(frozen=True)
class Turn:
    """The conversation up to and with one reply; of each id whether it was sampled, and its logprob."""

    messages: list[Any]
    ids: list[int]
    mask: list[int]
    logprobs: list[float]
    status: str
    versions: list[str]
    prompt_length: int


@dataclass
class Recorder:
    """Forwards chat completions to the engine, and keeps what the engine really saw and said."""

    engine_url: str
    tokenizer: ByteTokenizer
    client: httpx.AsyncClient
    turns: list[Turn] = field(default_factory=list)

    async def chat(self, request: Request) -> JSONResponse:
        body = await request.json()
        messages, tools = body["messages"], body.get("tools")
        while self.turns and _essence(self.turns[-1].messages) != _essence(messages[: len(self.turns[-1].messages)]):
            self.turns.pop()  # asked again, or something else: history goes on from here
        last = self.turns[-1] if self.turns else None
        if last is not None and last.status != "completed":
            return JSONResponse({"message": f"the last reply is {last.status}, and cannot be extended"}, 409)
        fresh = messages[len(last.messages) :] if last else messages
        ids = self.tokenizer.extend(last.ids, fresh, tools=tools) if last else self.tokenizer.render(fresh, tools=tools)
        asked = {**body, "input_ids": ids, "logprobs": True, "return_meta_info": True, "stream": False}
        reply = await self.client.post(f"{self.engine_url}/v1/chat/completions", json=asked)
        if reply.is_success:
            self.turns.append(self._recorded(messages, ids, last, reply.json()["choices"][0]))
        return JSONResponse(reply.json(), reply.status_code)

    def _recorded(self, messages: list[Any], ids: list[int], last: Turn | None, choice: dict[str, Any]) -> Turn:
        said = choice["meta_info"]["output_token_logprobs"]
        # of the last reply, a stop token may have given way to the template's own delimiter
        kept = min(len(ids), len(last.ids)) if last else 0
        while last and ids[:kept] != last.ids[:kept]:
            kept -= 1
        mask, logprobs = (last.mask[:kept], last.logprobs[:kept]) if last else ([], [])
        asked = len(ids) - kept
        return Turn(
            messages=[*messages, choice["message"]],
            ids=[*ids, *(token for _, token, *_ in said)],
            mask=[*mask, *[0] * asked, *[1] * len(said)],
            logprobs=[*logprobs, *[0.0] * asked, *(logprob for logprob, *_ in said)],
            status=STATUS[choice["finish_reason"]],
            versions=[*(last.versions if last else []), choice["meta_info"]["weight_version"]],
            prompt_length=last.prompt_length if last else len(ids),
        )

    def sample(self, source: dict[str, Any], limit: int | None) -> dict[str, Any]:
        """A sample of all that was recorded and fits `limit`; else an aborted one."""
        usable = [turn for turn in self.turns if limit is None or _prompt_end(turn) < limit]
        if not usable:
            return {**source, "status": "aborted"}
        turn = usable[-1]
        end = len(turn.ids) if limit is None else min(limit, len(turn.ids))
        cut = end < len(turn.ids) or turn is not self.turns[-1]
        response = slice(turn.prompt_length, end)
        return {
            **source,
            "tokens": turn.ids[:end],
            "response": self.tokenizer.decode(turn.ids[response]),
            "response_length": end - turn.prompt_length,
            "loss_mask": turn.mask[response],
            "rollout_log_probs": turn.logprobs[response],
            "weight_versions": turn.versions,
            "status": "truncated" if cut else turn.status,
        }


def _essence(messages: list[Any]) -> list[Any]:
    """What an agent must send back unchanged; clients drop empty fields and add keys of their own."""
    calls = [[call["function"] for call in message.get("tool_calls") or ()] for message in messages]
    return [(m["role"], m.get("content") or "", call) for m, call in zip(messages, calls, strict=True)]


def _prompt_end(turn: Turn) -> int:
    """How many ids stand before the turn's reply."""
    return len(turn.ids) - "".join(map(str, turn.mask))[::-1].partition("0")[0].count("1")


class ForeignTarget:
    """The adapter: `describe`, `play`, `close`."""

    async def describe(self) -> TargetInfo:
        return TargetInfo(
            name="foreign",
            version="1.0",
            python=platform.python_version(),
            optimize=0,
            capabilities=CAN,
            absent={name: CANNOT.get(name, "it has no such part") for name in CAPABILITIES if name not in CAN},
            stand_ins=[],
        )

    async def play(self, job: Job, agent: AgentFunction) -> dict[str, Any]:
        tokenizer = ByteTokenizer(job["tokenizer"])
        async with httpx.AsyncClient(timeout=None) as client, AsyncExitStack() as stack:

            async def one(number: int) -> dict[str, Any]:
                recorder = Recorder(job["engine_url"], tokenizer, client)
                routes = [Route("/v1/chat/completions", recorder.chat, methods=["POST"])]
                url = await stack.enter_async_context(serve(Starlette(routes=routes)))
                asked = {CHAT_NAMES.get(name, name): value for name, value in job["sampling"][number].items()}
                source = {"prompt": "", **job["inputs"][number]}
                returned: dict[str, Any] | None = None
                try:
                    returned = await agent(number, url, asked, source["metadata"])
                except Exception:  # what was recorded before the agent crashed is good all the same
                    returned = {}
                sample = recorder.sample(source, job["max_seq_len"])
                sample["metadata"] = {**source["metadata"], **(returned or {})}
                return {
                    "input": source,
                    "input_after": source,
                    "agent_ran": True,
                    "returned": "single",
                    "samples": [sample],
                }

            rollouts = await asyncio.gather(*(one(number) for number in range(len(job["inputs"]))))
        return {"schema": "miles-sim/observation/2", "session": job["session"], "rollouts": rollouts}

    async def close(self) -> None:
        """Nothing outlives a play."""
