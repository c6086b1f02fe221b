"""The control plane over HTTP: abort, pause, flush, adapters, memory. Bodies and answers as the release gives them
(http_server.py, tokenizer_control_mixin.py); how requests in flight fare is the scheduler's.
"""

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from miles_sim.engine.adapters import AdapterError
from miles_sim.engine.answers import answer, plain
from miles_sim.engine.body import ControlBody, Handler, read_body
from miles_sim.engine.errors import CrashError, validation_error
from miles_sim.engine.scheduler import PauseMode

if TYPE_CHECKING:
    from miles_sim.engine.engine import Engine

FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)


class Abort(ControlBody):
    rid: str | None = None
    abort_all: bool = False


class Pause(ControlBody):
    mode: PauseMode = "abort"


class Continue(ControlBody):
    torch_empty_cache: bool = True


class Adapter(ControlBody):
    lora_name: str


class AdapterOnDisk(Adapter):
    lora_path: str
    pinned: bool = False


class AdapterOfTensors(Adapter):
    config_dict: dict[str, Any]
    pinned: bool = False


class AdapterOfOneTensor(AdapterOfTensors):
    serialized_tensors: str


class AdapterOfNamedTensors(AdapterOfTensors):
    """A copy of the tensors for each rank."""

    serialized_named_tensors: list[str]


class Memory(ControlBody):
    tags: list[str] | None = None


class Control:
    """The handlers, by path, and what they keep between calls."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._flushing = False

    def handlers(self) -> dict[str, Handler]:
        """Handlers by path, for all releases."""
        return {
            "/abort_request": self.abort,
            "/pause_generation": self.pause,
            "/continue_generation": self.resume,
            "/flush_cache": self.flush,
            "/load_lora_adapter": partial(self.load_adapter, model=AdapterOnDisk),
            "/load_lora_adapter_from_tensors": partial(self.load_adapter, model=self._of_tensors),
            "/unload_lora_adapter": self.unload_adapter,
            "/release_memory_occupation": self.release_memory,
            "/resume_memory_occupation": self.resume_memory,
        }

    async def abort(self, request: Request) -> Response:
        asked = read_body(Abort, await request.body())
        if asked.abort_all:
            self._engine.scheduler.abort()
        elif asked.rid:
            self._engine.scheduler.abort(asked.rid)
        return Response()

    async def pause(self, request: Request) -> Response:
        await self._engine.scheduler.pause(read_body(Pause, await request.body()).mode)
        return answer({"message": "Generation paused successfully.", "status": "ok"})

    async def resume(self, request: Request) -> Response:
        read_body(Continue, await request.body())
        self._engine.scheduler.resume()
        return answer({"message": "Generation continued successfully.", "status": "ok"})

    async def flush(self, request: Request) -> Response:
        told = self._engine.release.flush_failure == "told"
        timeout = _timeout(request.query_params.get("timeout", "0")) if told else 0.0
        failure = await self._flush(timeout)
        if failure is None:
            return plain(FLUSHED, 200)
        return plain(failure if told else FLUSHED, 400)

    async def _flush(self, timeout: float) -> str | None:
        """None where it was done, else why not (scheduler_components/flush_wrapper.py)."""
        scheduler, needs = self._engine.scheduler, self._engine.release.flush_needs
        if self._flushing:
            return "Another flush_cache is already in progress."
        if timeout > 0 and not scheduler.can_flush(needs):
            self._flushing = True
            try:
                await asyncio.wait_for(scheduler.settled(), timeout)
            except asyncio.TimeoutError:
                return "Timed out waiting for idle state."
            finally:
                self._flushing = False
        return None if scheduler.flush(needs) else "Flush cache failed.\n"

    @property
    def _of_tensors(self) -> type[AdapterOfTensors]:
        named = self._engine.release.lora_tensors == "serialized_named_tensors"
        return AdapterOfNamedTensors if named else AdapterOfOneTensor

    async def load_adapter(self, request: Request, model: type[AdapterOnDisk] | type[AdapterOfTensors]) -> Response:
        asked = read_body(model, await request.body())
        path = asked.lora_path if isinstance(asked, AdapterOnDisk) else "__tensor__"
        try:
            self._engine.adapters.load(asked.lora_name, path)
        except AdapterError as error:
            return self._adapters(str(error))
        return self._adapters(None)

    async def unload_adapter(self, request: Request) -> Response:
        """Once the requests on it are done."""
        name = read_body(Adapter, await request.body()).lora_name
        try:
            self._engine.adapters.check_unload(name)
            await self._engine.scheduler.without(name)
            self._engine.adapters.unload(name)
        except AdapterError as error:
            return self._adapters(str(error))
        return self._adapters(None)

    def _adapters(self, fault: str | None) -> Response:
        body = {
            "rid": None,
            "http_worker_ipc": None,
            "success": fault is None,
            "error_message": fault or "",
            "loaded_adapters": self._engine.adapters.loaded if fault is None else None,
        }
        return answer(body, 200 if fault is None else 400)

    async def release_memory(self, request: Request) -> Response:
        """With the KV goes what the prefix cache has of it. A real engine that is at work ends by an assertion in these
        words (weight_updater.py); here the call fails with them."""
        tags = read_body(Memory, await request.body()).tags
        scheduler = self._engine.scheduler
        if not scheduler.can_flush("idle_or_paused"):
            raise CrashError("release_memory_occupation should be called only when server is idle.")
        if not tags or "kv_cache" in tags:
            scheduler.flush("idle_or_paused")
        return answer(None)

    async def resume_memory(self, request: Request) -> Response:
        """There is no memory to take."""
        read_body(Memory, await request.body())
        return answer(None)


def _timeout(text: str) -> float:
    """Seconds; `RequestError` in FastAPI's words for what is no number from 0 on."""
    try:
        seconds = float(text)
    except ValueError:
        fault = {
            "type": "float_parsing",
            "loc": ("query", "timeout"),
            "msg": "Input should be a valid number, unable to parse string as a number",
            "input": text,
        }
        raise validation_error([fault]) from None
    if not seconds >= 0:
        below: dict[str, Any] = {
            "type": "greater_than_equal",
            "loc": ("query", "timeout"),
            "msg": "Input should be greater than or equal to 0",
            "input": text,
            "ctx": {"ge": 0.0},
        }
        raise validation_error([below])
    return min(seconds, 1e9) if math.isfinite(seconds) else 1e9
