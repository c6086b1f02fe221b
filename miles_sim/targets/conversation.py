"""One worker's life as its parent sees it: requests, the agents that they call, and how it ended."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from miles_sim.rollout.apart import apart
from miles_sim.rollout.errors import CancelledInsideError
from miles_sim.targets.advice import Advice, on_silence, on_start
from miles_sim.targets.base import AgentFunction, PlayError, TargetError
from miles_sim.targets.channel import Channel
from miles_sim.targets.worker import GRACE, error_document, spelled

Message = dict[str, Any]
_READY = 0


class _Request:
    """A request under way: its event loop, the answer to come, the agents that it called."""

    def __init__(self, agent: AgentFunction | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.agent = agent
        self.answer: asyncio.Future[Message | None] = self.loop.create_future()
        self.calls: dict[int, asyncio.Task[None]] = {}

    def soon(self, do: Callable[..., object], *arguments: Any) -> None:
        """Call from the channel's thread into the request's loop, unless that is gone."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(do, *arguments)

    def resolve(self, message: Message | None) -> None:
        if not self.answer.done():
            self.answer.set_result(message)


class Conversation:
    """Starts a worker with `command`. After any error it is of no more use, and closed."""

    def __init__(self, command: Sequence[str], checkout: str | None = None) -> None:
        self._name = command[0]
        self._checkout = checkout
        self._lock = threading.Lock()
        self._requests: dict[int, _Request] = {}
        self._last_id = _READY
        self._over = False
        self._channel = Channel(command, self._receive)

    async def begin(self, timeout: float) -> None:
        """Wait until the worker has loaded its target."""
        answer = await self._exchange(_READY, None, self._channel.start, timeout, "start")
        if answer["ready"] != 1:
            error = answer["error"]
            advice = on_start(error, self._name, self._checkout)
            raise await self._failure(f"cannot be loaded: {error['type']}: {error['message']}", advice)

    async def ask(self, op: str, timeout: float, agent: AgentFunction | None = None, **fields: Any) -> Any:
        """The value that the worker answers to `op`, within `timeout` seconds, agents it calls included."""
        self._last_id += 1
        message = {"id": self._last_id, "op": op, **fields}
        answer = await self._exchange(message["id"], agent, lambda: self._channel.send(message), timeout, op)
        if "error" in answer:
            error = answer["error"]
            raise await self._failure(f"{op}: {error['type']}: {error['message']}", played=op == "play")
        return answer.get("value")

    def close(self, grace: float = GRACE + 1) -> None:
        """End the worker and wait until it is gone; by force after `grace` seconds."""
        self._channel.close(grace)

    async def _exchange(
        self, number: int, agent: AgentFunction | None, start: Callable[[], None], timeout: float, op: str
    ) -> Message:
        request = _Request(agent)
        with self._lock:
            self._requests[number] = request
            if self._over:
                request.resolve(None)
        start()
        try:
            answer = await asyncio.wait_for(request.answer, timeout)
        except asyncio.TimeoutError:
            raise await self._failure(f"{op}: no answer within {timeout:g} s", played=op == "play") from None
        finally:
            with self._lock:
                del self._requests[number]
            for task in request.calls.values():
                task.cancel()
            await asyncio.gather(*request.calls.values(), return_exceptions=True)
        if answer is None:
            nonsense = self._channel.nonsense
            what = f"{op}: " + (f"answered nonsense: {nonsense!r}" if nonsense else "died")
            advice = on_silence(self._name) if number == _READY else None
            raise await self._failure(what, advice, played=op == "play" and not nonsense)
        return answer

    async def _failure(self, what: str, advice: Advice | None = None, *, played: bool = False) -> TargetError:
        """The error to raise; the worker is gone then, and what it said last is known."""
        await asyncio.to_thread(self.close, 0.5)
        advice = advice or Advice(told_all=False)
        lines = "".join(f"\n  {line}" for line in advice.lines)
        said = "" if advice.told_all else self._channel.last_words()
        message = f"{self._name}: {what}{lines}{said}"
        return PlayError(message, what) if played else TargetError(message, install=advice.install)

    def _receive(self, message: Message | None) -> None:
        """Called from the channel's thread; None is the end."""
        with self._lock:
            if message is None:
                self._over = True
                for request in self._requests.values():
                    request.soon(request.resolve, None)
                return
            concerned = self._requests.get(message.get("id", _READY))
        if concerned is None:
            return
        if "call" in message:
            concerned.soon(self._call, concerned, message)
        elif "cancel" in message:
            concerned.soon(self._cancel, concerned, message)
        else:
            concerned.soon(concerned.resolve, message)

    def _call(self, request: _Request, message: Message) -> None:
        task = request.loop.create_task(self._run(request, message["call"], message["agent"]))
        request.calls[message["call"]] = task

    @staticmethod
    def _cancel(request: _Request, message: Message) -> None:
        task = request.calls.get(message["cancel"])
        if task is not None:
            task.cancel()

    async def _run(self, request: _Request, call: int, arguments: dict[str, Any]) -> None:
        try:
            if request.agent is None:
                raise TargetError(f"{self._name}: called an agent where there is none to call")
            answer = spelled(await apart(request.agent(**arguments)))
        except CancelledInsideError:
            answer = {"error": error_document(asyncio.CancelledError())}
        except Exception as error:
            answer = {"error": error_document(error)}
        self._channel.send({"answer": call, **answer})
