"""Weights over HTTP: updates, their sessions and groups, versions (http_server.py, tokenizer_control_mixin.py,
scheduler_components/weight_updater.py). No weights move: what changes is the version, and what is in flight meanwhile.
"""

from hashlib import blake2b, sha256
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from miles_sim.engine.answers import answer, done
from miles_sim.engine.body import ControlBody, Handler, read_body

if TYPE_CHECKING:
    from miles_sim.engine.engine import Engine

Selector = Literal["target", "draft", "all"]
NOT_FLUSHED_AFTER_UPDATE = {
    "dies": "Cache flush failed after updating weights",
    "told": (
        "Weights were updated, but the cache was not flushed because requests are still running or queued. "
        "Retract or finish them, then call /flush_cache."
    ),
}
"""`dies`: the words of the assertion by which the scheduler of a real engine ends; here the update fails with them."""


_MOST_NUMBERS = 4_096
"""Of a parameter."""


class WeightUpdate(ControlBody):
    """What all updates have."""

    flush_cache: bool = True
    abort_all_requests: bool = False
    weight_version: str | None = None


class FromDisk(WeightUpdate):
    model_path: str
    load_format: str | None = None


class FromTensor(WeightUpdate):
    serialized_named_tensors: list[str]
    load_format: str | None = None
    selector: Selector = "all"


class FromDistributed(WeightUpdate):
    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]
    group_name: str = "weight_update_group"
    load_format: str | None = None
    selector: Selector = "all"


class FromIPC(WeightUpdate):
    zmq_handles: dict[str, str]


class NewVersion(ControlBody):
    new_version: str
    abort_all_requests: bool = True


class Group(ControlBody):
    group_name: str = "weight_update_group"


class NewGroup(Group):
    master_address: str
    master_port: int
    rank_offset: int
    world_size: int
    backend: str = "nccl"


class Begin(ControlBody):
    selector: Selector = "all"


class Named(ControlBody):
    name: str
    truncate_size: int = 100


class Checked(ControlBody):
    action: str


class CheckedBySum(ControlBody):
    action: str = "checksum"


class Weights:
    """The handlers, and what they keep between calls."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._groups: set[str] = set()
        self._session_open = False
        self._whole = True
        """False from a reset of all tensors to the next update."""
        self._snapshot: bool | None = None
        """Whether they were whole when they were noted down; None: they never were."""

    def handlers(self) -> dict[str, Handler]:
        """Handlers by path, for all releases."""
        return {
            "/update_weights_from_disk": self.from_disk,
            "/update_weights_from_tensor": self.from_tensor,
            "/update_weights_from_distributed": self.from_distributed,
            "/update_weights_from_ipc": self.from_ipc,
            "/update_weight_version": self.new_version,
            "/init_weights_update_group": self.init_group,
            "/destroy_weights_update_group": self.destroy_group,
            "/begin_weight_update": self.begin_update,
            "/end_weight_update": self.end_update,
            "/post_process_weights": self.post_process,
            "/get_weights_by_name": self.by_name,
            "/weights_checker": self.checked,
        }

    async def from_disk(self, request: Request) -> Response:
        update = read_body(FromDisk, await request.body())
        success, message = await self._update(update, "Succeeded to update model weights.")
        if success:
            self._engine.model_path = update.model_path
        return done(success, message, num_paused_requests=0)

    async def from_tensor(self, request: Request) -> Response:
        update = read_body(FromTensor, await request.body())
        if not self._takes_weights:
            return done(False, _outside_session("update_weights_from_tensor"))
        return done(*await self._update(update, "Success"))

    async def from_distributed(self, request: Request) -> Response:
        update = read_body(FromDistributed, await request.body())
        if not self._takes_weights:
            return done(False, _outside_session("update_weights_from_distributed"))
        if update.group_name not in self._groups:
            fault = f"Group {update.group_name} not in {sorted(self._groups)}."
            return done(False, f"Failed to receive weights: {fault} Please call `init_weights_update_group` first.")
        return done(*await self._update(update, "Succeeded to update parameter online."))

    async def from_ipc(self, request: Request) -> Response:
        update = read_body(FromIPC, await request.body())
        return done(*await self._update(update, "IPC weight update completed successfully"))

    async def _update(self, update: WeightUpdate, message: str) -> tuple[bool, str]:
        engine = self._engine
        if update.abort_all_requests:
            engine.scheduler.abort()
        needs = engine.release.flush_needs if update.flush_cache else None
        if not await engine.scheduler.change_weights(update.weight_version, flush=needs):
            return False, NOT_FLUSHED_AFTER_UPDATE[engine.release.flush_after_update]
        self._whole = True
        if update.weight_version is not None:
            message += f" Weight version updated to {update.weight_version}."
        return True, message

    @property
    def _takes_weights(self) -> bool:
        return self._session_open or not self._engine.release.weight_session

    async def new_version(self, request: Request) -> Response:
        asked = read_body(NewVersion, await request.body())
        if asked.abort_all_requests:
            self._engine.scheduler.abort()
        self._engine.scheduler.set_version(asked.new_version)
        message = f"Weight version updated to {asked.new_version}"
        return answer({"success": True, "message": message, "new_version": asked.new_version})

    async def init_group(self, request: Request) -> Response:
        self._groups.add(read_body(NewGroup, await request.body()).group_name)
        return done(True, "Succeeded to initialize custom process group.")

    async def destroy_group(self, request: Request) -> Response:
        name = read_body(Group, await request.body()).group_name
        if name not in self._groups:
            return done(False, "The group to be destroyed does not exist.")
        self._groups.remove(name)
        return done(True, "Succeeded to destroy custom process group.")

    async def begin_update(self, request: Request) -> Response:
        read_body(Begin, await request.body())
        await self._engine.scheduler.exclusive()
        if self._session_open:
            return done(False, "a weight-update session is already open; call end_weight_update() first")
        self._session_open = True
        return done(True, "Success")

    async def end_update(self, request: Request) -> Response:
        read_body(ControlBody, await request.body())
        await self._engine.scheduler.exclusive()
        if not self._session_open:
            return done(False, "no weight-update session is open; call begin_weight_update() first")
        self._session_open = False
        return done(True, "Success")

    async def by_name(self, request: Request) -> Response:
        """Numbers drawn from the seed, the version of the weights and the name, any name: others after an update."""
        asked = read_body(Named, await request.body())
        version = self._engine.scheduler.weight_version
        draw = Random(f"{self._engine.seed}/{version}/{asked.name}")
        return answer([round(draw.uniform(-1, 1), 6) for _ in range(min(max(asked.truncate_size, 0), _MOST_NUMBERS))])

    async def checked(self, request: Request) -> Response:
        """Tensors noted down, spoiled and compared again: an update makes them whole (utils/weight_checker.py)."""
        body, sums = await request.body(), self._engine.release.weights_checksum
        named = sums == "none"
        action = read_body(Checked, body).action if named else read_body(CheckedBySum, body or b"{}").action
        if action == "snapshot":
            self._snapshot = self._whole
        elif action == "reset_tensors":
            self._whole = False
        elif action == "compare":
            return self._compared()
        elif action == "checksum" and sums != "none":
            return done(True, "Success.", **self._checksum({"role": "target"} if sums == "roles" else {}))
        else:
            return done(False, f"Unsupported action={action!r}")
        return done(True, "Success.")

    def _checksum(self, role: dict[str, Any]) -> dict[str, Any]:
        """Of the one tensor that there is said to be: other ones after an update, and while it is spoiled."""
        engine = self._engine
        told = f"{engine.seed}/{engine.scheduler.weight_version}/{self._whole}"
        sums = {"model.weight": blake2b(told.encode(), digest_size=8).hexdigest()}
        whole = sha256("".join(name + value for name, value in sums.items()).encode()).hexdigest()
        ranks = {f"{kind}_{what}": n for kind in ("tp", "dp", "pp") for n, what in enumerate(("rank", "size"))}
        place = {**role, **ranks, "rank": 0, "size": 1}
        return {
            "ranks": [{"checksums": sums, "per_gpu_checksum": whole, "parallelism_info": place}],
            "per_engine_checksum": sha256(whole.encode()).hexdigest(),
        }

    def _compared(self) -> Response:
        if self._snapshot is None:
            return done(False, "")
        equal = self._snapshot == self._whole
        return done(equal, "Success." if equal else "check tensor equality failed:\nname=model.weight")

    async def post_process(self, request: Request) -> Response:
        """The fork's; there are no tensors to convert."""
        read_body(ControlBody, await request.body())
        return done(True, "Success")


def _outside_session(method: str) -> str:
    return f"{method} must run between begin_weight_update() and end_weight_update()"
