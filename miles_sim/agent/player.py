"""Plays an agent plan over plain OpenAI chat completions."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx
import orjson

from miles_sim.agent.conversation import Conversation, Message, Request
from miles_sim.agent.errors import AgentCrash, AgentReplyError, AgentRequestError
from miles_sim.agent.exchange import CANCELLED, Exchange, Reply
from miles_sim.agent.hook import PLANNED, RETURN, AgentGone, Deed, Doing, Hook, changed
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

EARLIER = "earlier"
"""Kind of a further request that was made before its step's own."""


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
    hook: Hook | None = None,
) -> dict[str, Any] | None:
    """Plays `plan` against `{base_url}/v1/chat/completions` and gives what the plan returns.

    `request_kwargs` go into every request, as miles hands them to an agent function. Messages depend on `seed` and
    the plan alone: each rollout says the same. `journal` takes one `Turn` a request, failed ones included, and
    stands in the plan's order when this returns or raises. `hook` may make the agent do something else.
    Raises `AgentCrash` where the plan says so, `AgentRequestError` for a refused or lost request,
    `AgentReplyError` for a reply that the plan cannot go on from. Of several parallel branches each is played to
    its end; then the first error in the plan's order is raised.
    """
    order = {key: place for place, (key, _) in enumerate(walk(plan.steps))}
    url = f"{base_url.rstrip('/')}/v1/chat/completions"
    player = _Player(plan, client, url, request_kwargs, rollout, seed, model, hook)
    try:
        await player.steps(player.conversation(), plan.steps, "")
    except AgentGone:
        pass
    finally:
        journal += sorted(player.journal, key=lambda turn: _place(turn, order))
    returned = None if plan.returns is None else dict(plan.returns)
    deed = PLANNED if hook is None else hook.does(Doing(RETURN, returned=returned))
    if deed.before is not None:
        raise deed.before()
    return returned if deed.returns is None else deed.returns(returned)


def _place(turn: Turn, order: Mapping[str, int]) -> tuple[int, bool, int]:
    """In the plan's order; further requests of a step stand behind its own, but for those made before it."""
    step, _, number = turn.step.partition("~")
    return order[step], turn.kind != EARLIER, int(number or 0)


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
        hook: Hook | None,
    ) -> None:
        self.plan, self.hook, self.rollout, self.seed = plan, hook, rollout, seed
        self.exchange = Exchange(client, url, plan.retries)
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
        if step.tools is not None:
            talk.retool(step.tools)
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
        deed = self.does(talk, key, own=0, options=self.options)
        await self.send(talk, Request(key, "retry", old.parent, old.body, retry_of=old.step), deed)

    async def together(self, talk: Conversation, subagents: Sequence[tuple[str, Subagent]]) -> None:
        """Plays subagents at the same time, each to its end."""
        talks = [
            self.conversation("subagent") if step.start == "fresh" else talk.fork(step.at) for _, step in subagents
        ]
        plays = (self.steps(t, step.steps, f"{key}.") for t, (key, step) in zip(talks, subagents, strict=True))
        outcomes = await asyncio.gather(*plays, return_exceptions=True)
        failed = next((outcome for outcome in outcomes if outcome is not None), None)
        if failed is not None:
            try:
                raise failed
            finally:
                del failed, outcomes  # an error holds this frame, which must not hold it in turn
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
        talk.messages += messages
        fields: dict[str, Any] = {**self.options, **(options or {})}
        if step.max_tokens is not None:
            fields["max_tokens"] = step.max_tokens
        if talk.tools is not None:
            fields["tools"] = list(talk.tools)
        deed = self.does(talk, key, own=len(messages), options=fields)
        if deed.messages is not None or deed.omitted:
            talk.rewrite(talk.messages if deed.messages is None else deed.messages, deed.omitted)
        body = {name: value for name, value in fields.items() if name not in talk.omitted}
        body["messages"] = talk.messages
        await self.send(talk, Request(key, kind, talk.parent, orjson.dumps(body)), deed)

    def does(self, talk: Conversation, key: str, *, own: int, options: Mapping[str, Any]) -> Deed:
        """What the agent does at a step whose messages stand at the end of the conversation."""
        if self.hook is None:
            return PLANNED
        return self.hook.does(Doing(key, tuple(talk.messages), own, options))

    async def send(self, talk: Conversation, request: Request, deed: Deed) -> None:
        """One request, journaled whatever becomes of it; its reply goes into the history."""
        talk.request = request
        if deed.before is not None:
            raise deed.before()
        if deed.later is not None and self.hook is not None:
            self.hook.later(deed.later, lambda: self.ask_late(request))
        reply = await self.replied(request, deed)
        if reply.status != 200:
            raise AgentRequestError(request.step, reply.status, reply.text)
        if reply.message is None:
            raise AgentReplyError(f"step {request.step!r}: the reply is no chat completion: {reply.text[:500]}")
        talk.answered(request.step, reply.message)
        if deed.after is not None:
            raise deed.after()

    async def replied(self, request: Request, deed: Deed) -> Reply:
        """The reply to a request, which is made again as often as the plan says.

        Further ones are made but once, and so is one that has others beside it: made again it would be a retry of them.
        """
        for number, change in enumerate(deed.earlier, start=1):
            extra = self.exchange.once(changed(request.body, change))
            await self.journaled(replace(request, kind=EARLIER), extra, number)
        bodies = [changed(request.body, change) for change in deed.beside]
        if not bodies:
            return await self.journaled(request, self.exchange.post(request.body))
        posts = [self.exchange.once(body) for body in (request.body, *bodies)]
        replies = [CANCELLED] * (1 + len(bodies))
        try:
            replies = await asyncio.gather(*posts)
            if bodies == [changed(request.body, lambda body: body)]:
                replies.sort(key=lambda reply: (reply.status != 200, reply.id or ""))
        finally:
            for number, reply in enumerate(replies):
                self.enter(request, reply, number)
        return replies[0]

    async def journaled(self, request: Request, post: Awaitable[Reply], number: int = 0) -> Reply:
        reply = CANCELLED
        try:
            reply = await post
        finally:
            self.enter(request, reply, number)
        return reply

    def enter(self, request: Request, reply: Reply, number: int) -> None:
        """Into the journal; `number` counts the further requests of a step."""
        self.journal.append(
            Turn(
                rollout=self.rollout,
                step=f"{request.step}~{number}" if number else request.step,
                kind="extra" if number and request.kind != EARLIER else request.kind,
                parent=request.parent,
                retry_of=None if number else request.retry_of,
                status=reply.status,
                response_id=reply.id,
                finish_reason=reply.finish_reason,
                failed=reply.failed,
                doubled=reply.doubled,
            )
        )

    async def ask_late(self, request: Request) -> None:
        """Once more, when nobody waits for it."""
        await self.exchange.once(request.body)


def _user(talk: Conversation, text: str, tag: str) -> Message:
    """A user message: first what subagents reported, their square brackets rounded so that no tag stands in them."""
    reports = [f"A subagent reports: {told.replace('[', '(').replace(']', ')')}\n" for told in talk.told]
    talk.told.clear()
    return {"role": "user", "content": "".join(reports) + tagged(text, tag)}
