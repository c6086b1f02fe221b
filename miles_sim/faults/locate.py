"""Where an HTTP request of a play stands in its plan, told by what it asks and never by when it comes."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from miles_sim.agent.plan import Plan, Say, asked, walk
from miles_sim.agent.steps import MAX_DRAWS
from miles_sim.faults.place import Edge
from miles_sim.faults.strike import Asked

DRIVER_STEPS = ("open", "collect", "delete")
"""What the driver asks of the session server, in order."""
OPENS = "/sessions"
"""Path of a request that opens a session."""
OPENER = "x-miles-sim-rollout"
"""Header in which a driver that opens sessions in any order, or again, may say for which rollout: its position."""
_DRIVEN = {("POST", "/samples"): "collect", ("GET", ""): "collect", ("DELETE", ""): "delete"}
"""Requests of the driver about one session; a driver that assembles samples itself gets the records."""
_TAG = re.compile(r"\[([A-Za-z0-9_.-]{1,64})\]")
_SESSION = re.compile(r"/sessions/([^/]+)(/samples|/v1/chat/completions|)$")
_ENGINE = frozenset({"/v1/chat/completions", "/generate"})
_TAIL = 512
"""Ids of a prompt's end in which the latest question's tag is looked for."""


@dataclass(frozen=True)
class Question:
    """A request that a plan makes, and that may be made again."""

    ordinal: int
    key: str
    tag: str
    draw: int


@dataclass(frozen=True)
class Spot:
    """A `Place` whose attempt has not been counted."""

    edge: Edge
    rollout: int
    ordinal: int
    step: str


Locate = Callable[[Asked], Spot | None]


def edge_of(path: str) -> Edge | None:
    """The edge that a request to `path` passes; None for what no plan asks."""
    path = path.partition("?")[0]
    if path in _ENGINE:
        return "engine"
    found = _SESSION.search(path)
    if found is not None:
        return "session" if found.group(2).startswith("/v1") else "driver"
    return "driver" if path == OPENS else None


def questions(plan: Plan) -> tuple[Question, ...]:
    """Each question of the plan once, in its order; a retry is a further attempt of what it asks again."""
    order = {key: number for number, (key, _) in enumerate(walk(plan.steps))}
    found = sorted(asked(plan.steps), key=lambda question: order[question.key])
    return tuple(
        Question(ordinal, each.key, each.tag, each.step.draw if isinstance(each.step, Say) else 0)
        for ordinal, each in enumerate(found)
    )


@dataclass
class Locator:
    """A `Locate` for one play.

    `base_seed`: sampling seed of rollout 0. `openers`: the rollouts that open a session, in the order in which
    they do. `decode`: text of token ids.
    """

    plan: Plan
    base_seed: int
    openers: Sequence[int]
    decode: Callable[[Sequence[int]], str]
    _opened: int = 0
    _sessions: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._questions = {(each.tag, each.draw): each for each in questions(self.plan)}
        self._tags = frozenset(tag for tag, _ in self._questions)

    def told(self, rollout: int, base_url: str) -> None:
        """This rollout's agent was given a session of that URL."""
        self._sessions[base_url.rstrip("/").rpartition("/")[2]] = rollout

    def __call__(self, asked: Asked) -> Spot | None:
        """None for what is not of the plan: health, models, a request of someone else's."""
        path = asked.path.partition("?")[0]
        if path in _ENGINE:
            return self._question("engine", asked.body) if asked.method == "POST" else None
        if path == OPENS:
            return self._open(asked) if asked.method == "POST" else None
        found = _SESSION.search(path)
        if found is None:
            return None
        name, what = found.groups()
        if what == "/v1/chat/completions":
            return self._question("session", asked.body)
        step = _DRIVEN.get((asked.method, what))
        return None if step is None or name not in self._sessions else self._driver(self._sessions[name], step)

    def _open(self, asked: Asked) -> Spot | None:
        number, self._opened = self._opened, self._opened + 1
        opener = next((value for name, value in asked.headers if name.lower() == OPENER), "")
        if opener.isdecimal():
            return self._driver(int(opener), "open")
        return self._driver(self.openers[number], "open") if number < len(self.openers) else None

    def _driver(self, rollout: int, step: str) -> Spot:
        return Spot("driver", rollout, DRIVER_STEPS.index(step), step)

    def _question(self, edge: Edge, body: bytes) -> Spot | None:
        try:
            document = orjson.loads(body)
            seed, text = self._seed_and_text(document)
        except (ValueError, LookupError, TypeError, AttributeError):
            return None
        if type(seed) is not int or seed < self.base_seed:
            return None
        rollout, draw = divmod(seed - self.base_seed, MAX_DRAWS)
        tag = next((tag for tag in reversed(_TAG.findall(text)) if tag in self._tags), None)
        question = self._questions.get((tag, draw)) if tag is not None else None
        return None if question is None else Spot(edge, rollout, question.ordinal, question.key)

    def _seed_and_text(self, document: Mapping[str, Any]) -> tuple[Any, str]:
        if "messages" in document:
            content = document["messages"][-1]["content"]
            return document.get("seed"), content if isinstance(content, str) else orjson.dumps(content).decode()
        sampling = document.get("sampling_params") or {}
        return sampling.get("sampling_seed"), self.decode(document["input_ids"][-_TAIL:])
