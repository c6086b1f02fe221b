"""A target in another interpreter: started once, used for any number of plays, from one event loop after another."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from miles_sim.targets.base import AgentFunction, Job, TargetError, TargetInfo
from miles_sim.targets.conversation import Conversation

WORKER = Path(__file__).with_name("worker.py")


class RemoteTarget:
    """Runs an adapter file or a `pkg.mod:factory` under `python`, by way of `worker.py`.

    `paths` are searched for modules first, `fallback` last; a `checkout` before both, and it stays as it is. Timeouts
    are in seconds. A worker that answers nonsense gives a `TargetError` with the interpreter and the last lines it
    printed, one that dies or hangs in a play a `PlayError`; the next play starts another one.
    """

    bounds_plays = True
    """`play` ends by itself after the time that it has, in which a worker's start does not count."""

    def __init__(
        self,
        python: str,
        *,
        adapter: Path | str | None = None,
        target: str | None = None,
        optimize: bool = False,
        paths: Sequence[Path | str] = (),
        fallback: Path | str | None = None,
        start_timeout: float = 180.0,
        play_timeout: float = 60.0,
        checkout: str | None = None,
    ) -> None:
        if (adapter is None) == (target is None):
            raise ValueError(f"adapter: {adapter!r}, target: {target!r}: exactly one of them is due")
        what = ["--target", target] if target is not None else ["--adapter", str(adapter)]
        where = [
            part
            for path in ([checkout] if checkout else []) + list(paths)
            for part in ("--path", os.path.abspath(path))
        ]
        where += [] if fallback is None else ["--fallback", os.path.abspath(fallback)]
        # without -B a checkout would fill with compiled files, and an old one might be taken for a fresh one
        options = (["-O"] if optimize else []) + (["-B"] if checkout else [])
        self._command = [python, *options, str(WORKER), *what, *where]
        self._checkout = checkout
        self._start_timeout = start_timeout
        self._play_timeout = play_timeout
        self._conversation: Conversation | None = None
        self._unusable: TargetError | None = None
        self._info: TargetInfo | None = None

    async def describe(self) -> TargetInfo:
        """What the target says of itself; asked once."""
        if self._info is None:
            value = await self._ask("describe", self._start_timeout)
            missing = [name for name in TargetInfo.__annotations__ if name not in value]
            if missing:
                raise TargetError(f"{self._command[0]}: describe: the answer lacks {missing}")
            self._info = cast(TargetInfo, value)
        return self._info

    async def play(self, job: Job, agent: AgentFunction) -> dict[str, Any]:
        """As `Target.play`. Given up (cancelled), the worker ends: what it is about cannot be told."""
        return await self._ask("play", self._play_timeout, agent, job=job)

    async def examine(self) -> dict[str, Any]:
        """Where the target was found and which packages it stands on; {} for one that does not say."""
        return await self._ask("examine", self._start_timeout)

    async def close(self) -> None:
        """End the worker and wait until it is gone; by force where it does not end by itself."""
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            await asyncio.to_thread(conversation.close)

    async def _ask(self, op: str, timeout: float, agent: AgentFunction | None = None, **fields: Any) -> dict[str, Any]:
        conversation = self._conversation or await self._begin()
        try:
            value = await conversation.ask(op, timeout, agent, **fields)
            if not isinstance(value, Mapping):
                raise TargetError(f"{self._command[0]}: {op}: answered {type(value).__name__}, a mapping is due")
        except BaseException:
            self._conversation = None
            await asyncio.shield(asyncio.to_thread(conversation.close, 0.5))
            raise
        return dict(value)

    async def _begin(self) -> Conversation:
        """A worker that has loaded its target. What failed to start once is not tried again."""
        if self._unusable is not None:
            raise self._unusable.with_traceback(None)
        conversation = None
        try:
            conversation = Conversation(self._command, self._checkout)
            await conversation.begin(self._start_timeout)
        except BaseException as error:
            if isinstance(error, TargetError):
                self._unusable = error
            if conversation is not None:
                await asyncio.shield(asyncio.to_thread(conversation.close, 0.5))
            raise
        self._conversation = conversation
        return conversation
