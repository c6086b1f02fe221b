"""Hooks as a scenario names them, made of functions over any implementation's samples. Standard library only."""

import copy
from collections.abc import Callable
from typing import Any

Hook = Callable[[list[Any], dict[str, Any]], Any]
"""`fn(samples, session_metadata)`: a picker or a post-processor."""
MARK = "marked"
"""Metadata key that the post-processor `marks` writes."""


class HookFailure(RuntimeError):
    """What a hook that `raises` raises."""


def picker(name: str) -> Hook:
    """The sample picker of that name (`Scenario.hooks.picker`), `default` excepted, which is the target's own.

    Leaves are told apart by `metadata["leaf"]["node_id"]`, which is the order of commits.
    """
    return _PICKERS[name]


def postprocessor(name: str, default: Hook) -> Hook:
    """The post-processor of that name (`Scenario.hooks.postprocessor`); `default` is the target's own."""

    def marks(samples: list[Any], session_metadata: dict[str, Any]) -> Any:
        finished = default(samples, session_metadata)
        for sample in finished:
            sample.metadata[MARK] = True
        return finished

    return {**_PICKERS, "default": default, "marks": marks}[name]


def _raises(samples: list[Any], session_metadata: dict[str, Any]) -> Any:
    raise HookFailure("the hook failed")


def _by_commit(sample: Any) -> int:
    return int(sample.metadata["leaf"]["node_id"])


_PICKERS: dict[str, Hook] = {
    "all": lambda samples, session_metadata: samples,
    "earliest": lambda samples, session_metadata: [min(samples, key=_by_commit)],
    "latest": lambda samples, session_metadata: [max(samples, key=_by_commit)],
    "none": lambda samples, session_metadata: [],
    "raises": _raises,
    "foreign": lambda samples, session_metadata: copy.deepcopy(samples),
    "duplicate": lambda samples, session_metadata: [*samples[:1], *samples],
    "nothing": lambda samples, session_metadata: None,
}
