"""The adapter for miles: runs its own session server and its own `generate`. Standard library and miles only."""

import asyncio
import contextlib
import shutil
import socket
import sys
import tempfile
import types
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from .base import AgentFunction, Job, TargetInfo
from .miles_batch import Batch
from .miles_release import AGENT_MODULE, Release, arguments, find_release
from .miles_trainer import settings
from .views import rollout_view, sample_view


class MilesTarget:
    """The miles that this interpreter imports."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._batch = Batch(release)
        self._folder = tempfile.TemporaryDirectory(prefix="miles-sim-")

    async def describe(self) -> TargetInfo:
        info: TargetInfo = self._release.info()  # type: ignore[assignment]
        return info

    async def examine(self) -> dict[str, Any]:
        return self._release.places()

    async def play(self, job: Job, agent: AgentFunction) -> dict[str, Any]:
        async with AsyncExitStack() as stack:
            listener = stack.enter_context(_listener())
            args = arguments(job, checkpoint=self._checkpoint(job), port=listener.getsockname()[1])
            vars(args).update(settings(job))
            server = self._release.session_server(args, job["engine_url"])
            await stack.enter_async_context(_served(server.app, listener))
            await stack.enter_async_context(_http_client(self._release.http_utils, args))
            ran: set[int] = set()
            rollout = stack.enter_context(_agent_function(agent, ran))
            tokenizer = self._release.load_tokenizer(
                args.hf_checkpoint, chat_template_path=None, trust_remote_code=True
            )
            state = types.SimpleNamespace(args=args, tokenizer=tokenizer, processor=None)

            async def one(number: int) -> tuple[dict[str, Any], Any]:
                rollout.set(number)
                return await self._one(job, number, state, ran)

            results = await asyncio.gather(*(one(number) for number in range(len(job["inputs"]))))
            sessions = _open_sessions(server.app)
        return {
            "schema": "miles-sim/observation/1",
            "session": job["session"],
            "rollouts": [view for view, _ in results],
            "batch": self._batch.view(args, [returned for _, returned in results], job["batch"]),
            "sessions_open": sessions,
        }

    async def close(self) -> None:
        self._folder.cleanup()

    async def _one(self, job: Job, number: int, state: Any, ran: set[int]) -> tuple[dict[str, Any], Any]:
        """One rollout: its view, and what `generate` returned."""
        sample = self._release.new_sample({"prompt": "", **job["inputs"][number]})
        before = sample_view(sample)
        request = self._release.generate_input(
            state=state, sample=sample, sampling_params=dict(job["sampling"][number]), evaluation=False
        )
        try:
            returned = (await self._release.generate(request)).samples
        except Exception as error:
            return rollout_view(before, sample, None, agent_ran=number in ran, error=error), None
        return rollout_view(before, sample, returned, agent_ran=number in ran), returned

    def _checkpoint(self, job: Job) -> str:
        """A folder of ours with the job's tokenizer: miles caches tokenizers by folder, and jobs come and go."""
        folder = Path(self._folder.name) / job["tokenizer"]
        if not folder.is_dir():
            shutil.copytree(job["tokenizer_folder"], folder)
        return str(folder)


def open_target() -> MilesTarget:
    return MilesTarget(find_release())


@contextmanager
def _listener() -> Iterator[socket.socket]:
    """A socket that listens on a free loopback port: who connects early waits."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        yield listener


@asynccontextmanager
async def _served(app: Any, listener: socket.socket) -> AsyncIterator[None]:
    """Serve `app` in this event loop, signals left alone."""
    import uvicorn

    closing = asyncio.Event()

    class Server(uvicorn.Server):
        def install_signal_handlers(self) -> None:
            """Older uvicorn."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Newer uvicorn."""
            yield

        async def main_loop(self) -> None:
            """In place of a look at the clock ten times a second; idle connections are not waited for either."""
            await closing.wait()
            for connection in list(self.server_state.connections):
                connection.shutdown()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    server = Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=5))
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        closing.set()
        await serving


@asynccontextmanager
async def _http_client(http_utils: Any, args: Namespace) -> AsyncIterator[None]:
    """miles' process-wide HTTP client, for one play."""
    http_utils.init_http_client(args)
    try:
        yield
    finally:
        client, http_utils._http_client = http_utils._http_client, None
        if client is not None:
            await client.aclose()


@contextmanager
def _agent_function(agent: AgentFunction, ran: set[int]) -> Iterator[ContextVar[int]]:
    """`agent` where miles finds it by dotted path. Gives the variable that says which rollout a task is."""
    rollout: ContextVar[int] = ContextVar("rollout")

    async def run(base_url: str, prompt: Any, request_kwargs: Any, metadata: Any, **_: Any) -> Any:
        number = rollout.get()
        ran.add(number)
        return await agent(number, base_url, request_kwargs, metadata)

    module = types.ModuleType(AGENT_MODULE)
    module.run = run  # type: ignore[attr-defined]
    sys.modules[AGENT_MODULE] = module
    try:
        yield rollout
    finally:
        del sys.modules[AGENT_MODULE]


def _open_sessions(app: Any) -> int | None:
    """Sessions in the server's registry, which only its route functions hold."""
    for route in app.routes:
        for cell in getattr(getattr(route, "endpoint", None), "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # a cell that is empty yet
                held = cell.cell_contents
                for registry in (held, getattr(held, "registry", None)):
                    sessions = getattr(registry, "sessions", None)
                    if isinstance(sessions, dict):
                        return len(sessions)
    return None
