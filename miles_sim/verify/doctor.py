"""Whether a target can be put under contract: what was found, what is missing, and one rollout to see."""

from typing import Any, Literal

from pydantic import Field

from miles_sim.document import Document
from miles_sim.scenarios import library
from miles_sim.targets.base import Target, TargetError, TargetInfo
from miles_sim.transport import LocalNetwork
from miles_sim.verify.play import play

SCHEMA: Literal["miles-sim/diagnosis/1"] = "miles-sim/diagnosis/1"
SCENARIO = "linear"
"""What is played to try the target: two turns, no branch."""


class Trial(Document):
    """One rollout that was played."""

    case: str
    samples: int
    status: tuple[str, ...]
    """Of each sample."""
    trained: int
    """Trainable ids of all samples."""


class Diagnosis(Document):
    """What the doctor has to say of one target."""

    schema_: Literal["miles-sim/diagnosis/1"] = Field(default=SCHEMA, alias="schema")
    target: str
    python: str
    """Interpreter that was asked for; empty: this one."""
    checkout: str
    name: str = ""
    version: str = ""
    python_version: str = ""
    where: dict[str, str] = {}
    """Package to the folder that it was imported from."""
    packages: dict[str, str | None] = {}
    """Distribution to its version; None: not installed there."""
    capabilities: tuple[str, ...] = ()
    absent: dict[str, str] = {}
    stand_ins: tuple[str, ...] = ()
    trial: Trial | None = None
    problem: str = ""
    """Why it cannot be put under contract; empty: it can."""
    install: tuple[str, ...] = ()
    """Shell commands that may help."""

    @property
    def well(self) -> bool:
        return not self.problem


async def examine(target: Target, network: LocalNetwork | None, diagnosis: Diagnosis) -> Diagnosis:
    """`diagnosis` with all that was found; a target that cannot be used is a finding too."""
    found: dict[str, Any] = {}
    try:
        info = await target.describe()
        found = _told(info)
        asked = getattr(target, "examine", None)
        found |= await asked() if asked is not None else {}
        found["trial"] = await _trial(target, network, info)
    except TargetError as error:
        found |= {"problem": str(error), "install": error.install}
    return diagnosis.model_copy(update=found)


def _told(info: TargetInfo) -> dict[str, Any]:
    return {
        "name": info["name"],
        "version": info["version"],
        "python_version": info["python"],
        "capabilities": tuple(info["capabilities"]),
        "absent": info["absent"],
        "stand_ins": tuple(info["stand_ins"]),
    }


async def _trial(target: Target, network: LocalNetwork | None, info: TargetInfo) -> Trial:
    """One rollout under the newest session that the target has; raises `TargetError` unless it ends in samples."""
    scenario = library.load(SCENARIO)
    able = [session for session in scenario.sessions if f"session.{session}" in info["capabilities"]]
    if not able:
        raise TargetError(f"{info['name']}: serves neither of the sessions {', '.join(scenario.sessions)}")
    case = await play(scenario, target, session=max(able), network=network)
    (rollout,) = case.observation.rollouts
    if rollout.error is not None:
        raise TargetError(f"{info['name']}: {case.name}: generate raised {rollout.error.type}: {rollout.error.message}")
    masks = [sample.loss_mask or () for sample in rollout.samples]
    trial = Trial(
        case=case.name,
        samples=len(masks),
        status=tuple(sample.status for sample in rollout.samples),
        trained=sum(map(sum, masks)),
    )
    if not trial.trained:
        raise TargetError(f"{info['name']}: {case.name}: nothing of what the engine said is trained: {trial.status}")
    return trial
