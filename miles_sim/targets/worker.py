"""Runs a target inside its own interpreter and speaks JSON lines with the process that started it.

    PYTHON [-O] …/worker.py (--adapter FILE | --target pkg.mod:factory) [--path DIR]… [--fallback DIR]

Standard library only: the interpreter need not have miles-sim. An adapter file offers `open_target()`, a factory
is called as it is; both give an object with `describe()`, `play(job, agent)` and `close()`, all coroutines.
Siblings of the adapter and of this file are there for it as relative imports.

One JSON object a line, requests on the input, answers on the output:

    <- {"ready": 1}                               or {"ready": 0, "error": …} where the target cannot be loaded
    -> {"id": 1, "op": "describe"}                <- {"id": 1, "value": …} or {"id": 1, "error": …}
    -> {"id": 2, "op": "play", "job": …}          <- {"call": 1, "id": 2, "agent": {rollout, base_url, …}}, any number
    -> {"answer": 1, "value": …} or {"answer": 1, "error": …}, or {"answer": 1, "pickle": …} for what is no JSON
                                                  <- {"cancel": 1, "id": 2} where the target gives a call up
    -> {"id": 3, "op": "close"}                   <- {"id": 3, "value": null}, and the worker ends

An error is `{"type", "bases", "message"}`. What the target prints goes to the standard error stream. The worker
ends when its input does.
"""

import argparse
import asyncio
import base64
import builtins
import contextlib
import importlib
import json
import os
import pickle
import sys
import threading
import traceback
import types
from typing import IO, Any

PACKAGE = "miles_sim_adapter"
"""Name under which an adapter file is imported: a file called `miles.py` must not pass for miles."""
GRACE = 5.0
"""Seconds a target has to end once the input is closed; then the process goes without it."""


def error_document(error: BaseException) -> dict[str, Any]:
    """An exception as plain data: class name, names of its bases (nearest first), message."""
    bases = [base.__name__ for base in type(error).__mro__[1:-1]]
    return {"type": type(error).__name__, "bases": bases, "message": str(error)}


def spelled(value: Any) -> dict[str, Any]:
    """What an agent returned, as an answer of the conversation: JSON, or a pickle of what JSON would change."""
    try:
        if json.loads(json.dumps(value, allow_nan=False)) == value:
            return {"value": value}
    except (TypeError, ValueError, RecursionError):
        pass
    return {"pickle": base64.b64encode(pickle.dumps(value)).decode()}


def read_value(answer: Any) -> Any:
    """What `spelled` was given. Both ends are one user's, who starts the one from the other."""
    return pickle.loads(base64.b64decode(answer["pickle"])) if "pickle" in answer else answer["value"]


def rebuilt(document: Any) -> BaseException:
    """An exception of the same name, message and nearest built-in base as the one that crossed."""
    if document["type"] == "CancelledError":
        return asyncio.CancelledError()
    message = document["message"]
    known = (getattr(builtins, name, None) for name in (document["type"], *document["bases"]))
    base = next((b for b in known if isinstance(b, type) and issubclass(b, Exception)), Exception)
    members = {"__init__": Exception.__init__, "__str__": lambda self: message}
    error: Exception = type(document["type"], (base,), members)(message)
    return error


class Worker:
    """The target's side of the conversation."""

    def __init__(self, target: Any, output: IO[bytes]) -> None:
        self._target = target
        self._output = output
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._last_call = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()

    def send(self, message: dict[str, Any]) -> None:
        self._output.write(json.dumps(message).encode() + b"\n")
        self._output.flush()

    async def run(self, lines: "asyncio.Queue[bytes]") -> None:
        """Serve until an empty line, the end of the input, or `close`; nothing is left running."""
        self._lines = lines
        while line := await lines.get():
            self._receive(json.loads(line))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _receive(self, message: dict[str, Any]) -> None:
        if "answer" in message:
            self._answer(message)
            return
        task = asyncio.get_running_loop().create_task(self._serve(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, message: dict[str, Any]) -> None:
        try:
            value = await self._do(message)
            self.send({"id": message["id"], "value": value})
        except asyncio.CancelledError as error:
            self.send({"id": message["id"], "error": error_document(error)})  # an agent's own may have come through
            raise
        except Exception as error:
            self.send({"id": message["id"], "error": error_document(error)})
        if message["op"] == "close":
            self._lines.put_nowait(b"")

    async def _do(self, message: dict[str, Any]) -> Any:
        op = message["op"]
        if op == "describe":
            return await self._target.describe()
        if op == "close":
            return await self._target.close()
        if op == "examine":
            return await self._target.examine() if hasattr(self._target, "examine") else {}
        if op != "play":
            raise ValueError(f"op: {op!r} is not 'describe', 'examine', 'play' or 'close'")

        async def agent(rollout: int, base_url: str, request_kwargs: Any, metadata: Any) -> Any:
            request = {"rollout": rollout, "base_url": base_url}
            return await self._call(message["id"], {**request, "request_kwargs": request_kwargs, "metadata": metadata})

        return await self._target.play(message["job"], agent)

    async def _call(self, request_id: int, agent: dict[str, Any]) -> Any:
        self._last_call += 1
        call = self._last_call
        self._calls[call] = asyncio.get_running_loop().create_future()
        self.send({"call": call, "id": request_id, "agent": agent})
        try:
            return await self._calls[call]
        except asyncio.CancelledError:
            self.send({"cancel": call, "id": request_id})
            raise
        finally:
            del self._calls[call]

    def _answer(self, message: dict[str, Any]) -> None:
        future = self._calls.get(message["answer"])
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(rebuilt(message["error"]))
        else:
            future.set_result(read_value(message))


def claim_stdio() -> tuple[IO[bytes], IO[bytes]]:
    """The conversation's input and output. To the target, input is empty and output is the error stream."""
    source = os.fdopen(os.dup(0), "rb")
    sink = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, sink


def load(adapter: str | None, factory: str | None) -> Any:
    """The target of an adapter file or of a `pkg.mod:factory`."""
    here = os.path.dirname(os.path.abspath(__file__))
    if adapter is not None:
        folder, name = os.path.split(os.path.abspath(adapter))
        package = types.ModuleType(PACKAGE)
        package.__path__ = [folder, here]
        sys.modules[PACKAGE] = package
        return importlib.import_module(f"{PACKAGE}.{os.path.splitext(name)[0]}").open_target()
    module, _, attribute = (factory or "").partition(":")
    return getattr(importlib.import_module(module), attribute)()


async def converse(options: argparse.Namespace, source: IO[bytes], sink: IO[bytes]) -> None:
    """Load the target, say so, serve it."""
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    threading.Thread(target=_read, args=(source, asyncio.get_running_loop(), lines), daemon=True).start()
    try:
        target = load(options.adapter, options.target)
    except Exception as error:
        traceback.print_exc()
        sink.write(json.dumps({"ready": 0, "error": error_document(error)}).encode() + b"\n")
        sink.flush()
        return
    worker = Worker(target, sink)
    worker.send({"ready": 1})
    await worker.run(lines)


def _read(source: IO[bytes], loop: asyncio.AbstractEventLoop, lines: "asyncio.Queue[bytes]") -> None:
    """Hand each line to the loop. When the input ends, so does the process, whatever the target is about."""
    with contextlib.suppress(RuntimeError):  # the loop is closed where the worker ends by itself
        for line in source:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, b"")
    threading.Event().wait(GRACE)
    os._exit(1)


def main() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.abspath(sys.path[0]) == folder:
        del sys.path[0]  # it holds files named like the packages that a target imports
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--adapter", metavar="FILE")
    choice.add_argument("--target", metavar="pkg.mod:factory")
    parser.add_argument("--path", action="append", default=[], metavar="DIR", help="searched for modules first")
    parser.add_argument("--fallback", action="append", default=[], metavar="DIR", help="searched for modules last")
    options = parser.parse_args()
    sys.path[:] = [*options.path, *sys.path, *options.fallback]
    source, sink = claim_stdio()
    asyncio.run(converse(options, source, sink))


if __name__ == "__main__":
    main()
