"""What a defect is, and what several of them do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from miles_sim.rollout import assembly, session_metadata
from miles_sim.rollout.sample import Sample
from miles_sim.tokenizer import ChatTokenizer

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Defect:
    """One bug: which rules must report it, and where it shows."""

    name: str
    rules: tuple[str, ...]
    case: str
    """`scenario/session`."""
    patch: Patch
    crash: str = ""
    """Why it can do nothing but crash, where that is so."""


DEFECTS: list[Defect] = []


def defect(case: str, *rules: str, crash: str = "") -> Callable[[Patch], Patch]:
    """Enter a patch in the list; its docstring says what went wrong."""

    def enter(patch: Patch) -> Patch:
        DEFECTS.append(Defect(patch.__name__.replace("_", "-"), rules, case, patch, crash))
        return patch

    return enter


def after_joining(m: pytest.MonkeyPatch, change: Callable[[Sample, ChatTokenizer], None]) -> None:
    """Change a sample's ids just after they were put together."""
    joined = assembly._joined

    def changed(turns: Sequence[assembly.Turn], tokenizer: ChatTokenizer) -> Sample:
        sample = joined(turns, tokenizer)
        change(sample, tokenizer)
        return sample

    m.setattr(assembly, "_joined", changed)


def put(sample: Sample, **fields: Any) -> None:
    """Set fields of a sample; a statement that fits a lambda."""
    for name, value in fields.items():
        setattr(sample, name, value)


def all_asked_alike(m: pytest.MonkeyPatch) -> None:
    """The picker is told that all siblings asked the same thing."""
    node = session_metadata._node
    m.setattr(session_metadata, "_node", lambda record, parent: {**node(record, parent), "asked": "the same"})
