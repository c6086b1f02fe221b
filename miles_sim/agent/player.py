"""Plays an agent plan over plain OpenAI chat completions."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from miles_sim.agent.conversation import Conversation, Message, Request
from miles_sim.agent.errors import AgentCrash, AgentReplyError, AgentRequestError
from miles_sim.agent.plan import (
    Compact,
    Crash,
    Parallel,
    Plan,
    Retry,
    Say,
    Step,
    Subagent,
    Tool,
    branches,
    keyed,
    walk,
)
from miles_sim.agent.words import tagged, work_words
from miles_sim.ledger import Turn


async def play_plan(
    plan: Plan,
    *,
    client: httpx.AsyncClient,
    base_url: str,
    request_kwargs: Mapping[str, Any],
    rollout: int,
    seed: int,
    model: str = "sim",
    journal: list[Turn],
) -> dict[str, Any] | None:
    """Plays `plan` against `{base_url}/v1/chat/completions` and gives what the plan returns.

    `request_kwargs` go into every request, as miles hands them to an agent function. Messages depend on `seed` and
    the plan alone: each rollout says the same. `journal` takes one `Turn` a request, failed ones included, and
    stands in the plan's order when this returns or raises.
    Raises `AgentCrash` where the plan says so, `AgentRequestError` for a refused or lost request,
    `AgentReplyError` for a reply that the plan cannot go on from. Of several parallel branches each is played to
    its end; then the first error in the plan's order is raised.
    """
    order = {key: place for place, (key, _) in enumerate(walk(plan.steps))}
    player = _Player(plan, client, f"{base_url.rstrip('/')}/v1/chat/completions", request_kwargs, rollout, seed, model)
    try:
        await player.steps(player.conversation(), plan.steps, "")
    finally:
        journal += sorted(player.journal, key=lambda turn: order[turn.step])
    return None if plan.returns is None else dict(plan.returns)


@dataclass(frozen=True)
class _Reply:
    status: int
    """0 where the transport failed."""
    text: str
    id: str | None = None
    finish_reason: str | None = None
    message: Message | None = None


class _Player:
    def __init__(
        self,
        plan: Plan,
        client: httpx.AsyncClient,
        url: str,
        request_kwargs: Mapping[str, Any],
        rollout: int,
        seed: int,
        model: str,
    ) -> None:
        self.plan, self.client, self.url, self.rollout, self.seed = plan, client, url, rollout, seed
        self.journal: list[Turn] = []
        self.options: dict[str, Any] = {**request_kwargs, "model": model}
        if plan.tools:
            self.options["tools"] = list(plan.tools)

    def conversation(self, opens: str | None = None) -> Conversation:
        system = self.plan.system
        return Conversation([] if system is None else [{"role": "system", "content": system}], opens=opens)

    async def steps(self, talk: Conversation, steps: tuple[Step, ...], prefix: str) -> None:
        for key, step in keyed(steps, prefix):
            if isinstance(step, Say):
                await self.say(talk, step, key)
            elif isinstance(step, Tool):
                await self.tool(talk, step, key)
            elif isinstance(step, Compact):
                await self.compact(talk, step, key)
            elif isinstance(step, Retry):
                await self.retry(talk, key)
            elif isinstance(step, Subagent):
                await self.together(talk, [(key, step)])
            elif isinstance(step, Parallel):
                await self.together(talk, list(branches(key, step)))
            elif isinstance(step, Crash):
                raise AgentCrash(f"step {key!r}: {step.message}")

    async def say(self, talk: Conversation, step: Say, key: str) -> None:
        tag = step.tag or key
        text = work_words(self.seed, tag, step.words) if step.text is None else step.text
        options: dict[str, Any] = {"seed": (self.options.get("seed") or 0) + step.draw} if step.draw else {}
        await self.ask(talk, step, key, [_user(talk, text, tag)], options)

    async def tool(self, talk: Conversation, step: Tool, key: str) -> None:
        calls = talk.messages[-1].get("tool_calls")
        if not calls:
            raise AgentReplyError(f"step {key!r}: the latest reply holds no tool call to answer")
        results = [
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "content": tagged(work_words(self.seed, f"{key}:{number}", step.words), key),
            }
            for number, call in enumerate(calls)
        ]
        await self.ask(talk, step, key, results)

    async def compact(self, talk: Conversation, step: Compact, key: str) -> None:
        talk.cut(step.tail if step.keep == "tail" else 0)
        opening = "Summary of the work so far:" if step.keep == "summary" else "Go on:"
        await self.ask(talk, step, key, [_user(talk, f"{opening} {work_words(self.seed, key, step.words)}", key)])

    async def retry(self, talk: Conversation, key: str) -> None:
        old = talk.request
        if old is None:
            raise AgentReplyError(f"step {key!r}: there is no request to ask again")
        talk.withdraw()
        await self.send(talk, Request(key, "retry", old.parent, old.body, retry_of=old.step))

    async def together(self, talk: Conversation, subagents: Sequence[tuple[str, Subagent]]) -> None:
        """Plays subagents at the same time, each to its end."""
        talks = [
            self.conversation("subagent") if step.start == "fresh" else talk.fork(step.at) for _, step in subagents
        ]
        plays = (self.steps(t, step.steps, f"{key}.") for t, (key, step) in zip(talks, subagents, strict=True))
        for outcome in await asyncio.gather(*plays, return_exceptions=True):
            if outcome is not None:
                raise outcome
        talk.told += [t.content for t, (_, step) in zip(talks, subagents, strict=True) if step.returns]

    async def ask(
        self,
        talk: Conversation,
        step: Say | Tool | Compact,
        key: str,
        messages: list[Message],
        options: Mapping[str, Any] | None = None,
    ) -> None:
        kind = talk.opens if talk.opens and talk.request is None and step.do != "compact" else step.do
        parent = talk.parent
        talk.messages += messages
        body: dict[str, Any] = {**self.options, **(options or {}), "messages": talk.messages}
        if step.max_tokens is not None:
            body["max_tokens"] = step.max_tokens
        await self.send(talk, Request(key, kind, parent, orjson.dumps(body)))

    async def send(self, talk: Conversation, request: Request) -> None:
        """One request, journaled whatever becomes of it; its reply goes into the history."""
        talk.request = request
        reply = _Reply(0, "cancelled")
        try:
            reply = await self.post(request.body)
        finally:
            self.journal.append(
                Turn(
                    rollout=self.rollout,
                    step=request.step,
                    kind=request.kind,
                    parent=request.parent,
                    retry_of=request.retry_of,
                    status=reply.status,
                    response_id=reply.id,
                    finish_reason=reply.finish_reason,
                )
            )
        if reply.status != 200:
            raise AgentRequestError(request.step, reply.status, reply.text)
        if reply.message is None:
            raise AgentReplyError(f"step {request.step!r}: the reply is no chat completion: {reply.text[:500]}")
        talk.answered(request.step, reply.message)

    async def post(self, body: bytes) -> _Reply:
        try:
            response = await self.client.post(self.url, content=body, headers={"content-type": "application/json"})
        except httpx.RequestError as error:
            return _Reply(0, f"{type(error).__name__}: {error}")
        return _read(response)


def _read(response: httpx.Response) -> _Reply:
    if response.status_code != 200:
        return _Reply(response.status_code, response.text)
    try:
        document = orjson.loads(response.content)
        choice = document["choices"][0]
        message, finish_reason, name = choice["message"], choice["finish_reason"], document["id"]
    except (ValueError, LookupError, TypeError):
        return _Reply(200, response.text)
    if not isinstance(message, dict) or not isinstance(name, str):
        return _Reply(200, response.text)
    return _Reply(200, "", name, finish_reason if isinstance(finish_reason, str) else None, message)


def _user(talk: Conversation, text: str, tag: str) -> Message:
    """A user message: first what subagents reported, their square brackets rounded so that no tag stands in them."""
    reports = [f"A subagent reports: {told.replace('[', '(').replace(']', ')')}\n" for told in talk.told]
    talk.told.clear()
    return {"role": "user", "content": "".join(reports) + tagged(text, tag)}
