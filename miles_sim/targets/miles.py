"""The adapter for miles: runs its own session server and its own `generate`. Standard library and miles only."""

import asyncio
import base64
import shutil
import tempfile
import types
from argparse import Namespace
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import Any

from .base import AgentFunction, Job, TargetInfo
from .miles_arguments import arguments
from .miles_batch import Batch
from .miles_functions import Rollouts, functions
from .miles_release import NODE_CAP, Release, find_release
from .miles_router import settings
from .miles_serving import http_client, listener, open_sessions, replaced, served
from .miles_wire import impatient, tapped
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
        rollouts = Rollouts()
        async with AsyncExitStack() as stack:
            at = stack.enter_context(listener(job.get("session_listen") or 0))
            url = job.get("session_url") or f"http://127.0.0.1:{at.getsockname()[1]}"
            args = arguments(job, checkpoint=self._checkpoint(job), session_url=url)
            if self._release.routed and job["session"] != "direct":
                vars(args).update(settings(url))
            stack.enter_context(functions(job, agent, rollouts))  # a session server looks for its hooks at once
            app = None
            if job["session"] != "direct":
                app = self._release.session_server(args, job["engine_url"]).app
                await stack.enter_async_context(served(app, at))
            await stack.enter_async_context(http_client(self._release.http_utils, args, rollouts))
            stack.enter_context(self._node_cap(job))
            stack.enter_context(impatient())
            payloads = stack.enter_context(tapped(self._release.driver, rollouts, job.get("garble")))
            play = _Play(job, self._release, self._state(args), rollouts, payloads)
            results = await asyncio.gather(*(play.one(number) for number in range(len(job["inputs"]))))
            sessions = None if app is None else open_sessions(app)
        return {
            "schema": "miles-sim/observation/2",
            "session": job["session"],
            "rollouts": [view for view, _ in results],
            "batch": self._batch.view(args, [returned for _, returned in results], job["batch"]),
            "sessions_open": sessions,
        }

    async def close(self) -> None:
        self._folder.cleanup()

    def _state(self, args: Namespace) -> Any:
        """What `generate` finds of the process that it runs in."""
        tokenizer = self._release.load_tokenizer(args.hf_checkpoint, chat_template_path=None, trust_remote_code=True)
        return types.SimpleNamespace(args=args, tokenizer=tokenizer, processor=None)

    def _node_cap(self, job: Job) -> Any:
        most = job.get("max_nodes")
        return nullcontext() if most is None else replaced(self._release.tree, NODE_CAP, most)

    def _checkpoint(self, job: Job) -> str:
        """A folder of ours with the job's tokenizer: miles caches tokenizers by folder, and jobs come and go."""
        folder = Path(self._folder.name) / job["tokenizer"]
        if not folder.is_dir():
            shutil.copytree(job["tokenizer_folder"], folder)
        return str(folder)


class _Play:
    """The rollouts of one play."""

    def __init__(self, job: Job, release: Release, state: Any, rollouts: Rollouts, payloads: dict[int, bytes]) -> None:
        self._job = job
        self._release = release
        self._state = state
        self._rollouts = rollouts
        self._payloads = payloads
        """Rollout to what the session server sent of it."""

    async def one(self, number: int) -> tuple[dict[str, Any], Any]:
        """One rollout: its view, and what `generate` returned."""
        self._rollouts.enter(number)
        sample = self._release.new_sample({"prompt": "", **self._job["inputs"][number]})
        before = sample_view(sample)
        request = self._release.generate_input(
            state=self._state, sample=sample, sampling_params=dict(self._job["sampling"][number]), evaluation=False
        )
        returned: Any = None
        error: BaseException | None = None
        try:
            returned = (await self._generate(request)).samples
        except Exception as raised:
            error = raised
        except asyncio.CancelledError as raised:  # of the rollout's own making, else the play is given up
            if _given_up():
                raise
            error = raised
        payload = self._payloads.get(number)
        view = rollout_view(
            before,
            sample,
            returned,
            agent_ran=number in self._rollouts.ran,
            error=error,
            payload=None if payload is None else base64.b64encode(payload).decode(),
        )
        return view, returned

    @property
    def _generate(self) -> Any:
        direct = self._job.get("direct")
        if direct is None or self._release.direct is None:
            return self._release.generate
        without, with_tools = self._release.direct
        return with_tools if direct["tools"] else without


def _given_up() -> bool:
    """This task was asked to end; before Python 3.11 that cannot be told."""
    task: Any = asyncio.current_task()
    return bool(task.cancelling()) if hasattr(task, "cancelling") else True


def open_target() -> MilesTarget:
    """The miles that this interpreter can import; `ImportError` where it, or what every rollout needs, is not there."""
    return MilesTarget(find_release())
