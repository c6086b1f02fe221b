"""Which leaves of a tree become samples, and what they are given: the two hooks and their defaults."""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from miles_sim.rollout.errors import AssemblyError
from miles_sim.rollout.hook import hook_name, resolve_hook
from miles_sim.rollout.sample import RESERVED, Sample
from miles_sim.rollout.settings import RolloutSettings

SessionMetadata = Mapping[str, Any]
Hook = Callable[[list[Sample], dict[str, Any]], list[Sample]]
"""`fn(samples, session_metadata) -> samples`, synchronous. Each sample has `metadata["leaf"]`, the tree stands in
`session_metadata["tree"]`, what the agent returned in `session_metadata["agent"]`."""


def drop_retries(samples: Sequence[Sample], session_metadata: SessionMetadata) -> list[Sample]:
    """The leaves that no retry has superseded, longest path first, then latest commit.

    A leaf is superseded by a sibling that was committed later and asked the same thing, unless both were under
    way at the same time. Roots are siblings of one another. What asked something else is no retry.
    """
    later: dict[tuple[int | None, str], list[dict[str, Any]]] = {}
    nodes = {node["id"]: node for node in session_metadata["tree"]["nodes"]}
    for node in nodes.values():
        later.setdefault((node["parent"], node["asked"]), []).append(node)

    def superseded(sample: Sample) -> bool:
        own = nodes[sample.metadata["leaf"]["node_id"]]
        siblings = later[own["parent"], own["asked"]]
        return any(sibling["id"] > own["id"] and not _twins(own, sibling) for sibling in siblings)

    kept = [sample for sample in samples if not superseded(sample)]
    return sorted(kept, key=_rank, reverse=True)


def keep_all(samples: Sequence[Sample], session_metadata: SessionMetadata) -> list[Sample]:
    """Every leaf, in commit order."""
    return list(samples)


def default_postprocess(samples: Sequence[Sample], session_metadata: SessionMetadata) -> list[Sample]:
    """Each sampled id trainable in one sample, the earliest committed one that holds it; then `apply_agent`."""
    owned: dict[int, int] = {}
    for sample in sorted(samples, key=lambda sample: int(sample.metadata["leaf"]["node_id"])):
        begin = len(sample.tokens) - sample.response_length
        for segment in sample.metadata["lifecycle"]:
            if segment["span"] is None or sample.loss_mask is None:
                continue
            start, end = segment["span"]
            owned_to = owned.get(segment["node_id"], start)
            taken = min(owned_to, end)
            sample.loss_mask[start - begin : taken - begin] = [0] * (taken - start)
            owned[segment["node_id"]] = max(owned_to, end)
    apply_agent(samples, session_metadata.get("agent"))
    return list(samples)


def without_duplicates(samples: Sequence[Sample]) -> list[Sample]:
    """One sample where several leaves end at the same id, because what they share was cut: the earliest leaf's.

    What was left out of the others is told with it: their generations stand in its `lifecycle`, and count in `dropped`.
    """
    alike: dict[tuple[int, int], list[Sample]] = {}
    for sample in samples:
        end = next(segment for segment in reversed(sample.metadata["lifecycle"]) if segment["span"] is not None)
        alike.setdefault((end["node_id"], end["span"][1]), []).append(sample)
    kept = {id(_united(group)) for group in alike.values()}
    return [sample for sample in samples if id(sample) in kept]


def _united(samples: list[Sample]) -> Sample:
    """The earliest leaf's sample, with what the others tell of their own generations."""
    first = min(samples, key=lambda sample: int(sample.metadata["leaf"]["node_id"]))
    told = {segment["node_id"] for segment in first.metadata["lifecycle"]}
    for sample in samples:
        own = [segment for segment in sample.metadata["lifecycle"] if segment["node_id"] not in told]
        told |= {segment["node_id"] for segment in own}
        first.metadata["lifecycle"] += own
        for segment in own:
            counts = first.metadata.setdefault("dropped", {}).setdefault(segment["dropped"], {"turns": 0, "tokens": 0})
            counts["turns"] += 1
            counts["tokens"] += segment["sampled"]
    return first


def apply_agent(samples: Sequence[Sample], agent_metadata: Mapping[str, Any] | None) -> None:
    """Give each sample what the agent returned: metadata, less the reserved keys, and its scalar `reward`."""
    if not agent_metadata:
        return
    reward = agent_metadata.get("reward")
    for sample in samples:
        for key, value in agent_metadata.items():
            if key not in RESERVED:
                sample.metadata[key] = copy.deepcopy(value)
        if isinstance(reward, int | float) and not isinstance(reward, bool):
            sample.reward = reward


PICKERS: dict[str, Hook] = {"drop_retries": drop_retries, "keep_all": keep_all}
POSTPROCESSORS: dict[str, Hook] = {"default": default_postprocess}


def has_own_hooks(settings: RolloutSettings) -> bool:
    """Whether a hook is not a built-in one; SettingsError for one that cannot be had."""
    picker = resolve_hook("sample_picker", settings.sample_picker, PICKERS)
    postprocessor = resolve_hook("sample_postprocessor", settings.sample_postprocessor, POSTPROCESSORS)
    return picker not in PICKERS.values() or postprocessor not in POSTPROCESSORS.values()


def pick(samples: list[Sample], session_metadata: dict[str, Any], hook: str | Hook) -> list[Sample]:
    """Run a picker; AssemblyError names it if it raises or returns anything but some of `samples`, each once.

    It leaves `leaf` and `lifecycle` of their metadata as they are: what comes after it reads them.
    """
    place = f"sample_picker {hook_name(hook)}"
    function = resolve_hook("sample_picker", hook, PICKERS)
    own = function not in PICKERS.values()
    told = {id(sample): _path_told(sample) if own else "" for sample in samples}
    picked = _run(function, samples, session_metadata, place)
    if any(id(sample) not in told for sample in picked):
        raise AssemblyError(f"{place}: returned a sample that is none of its input")
    if own and any(_path_told(sample) != told[id(sample)] for sample in picked):
        raise AssemblyError(
            f"{place}: changed metadata.leaf or metadata.lifecycle of a sample, which a picker leaves as they are"
        )
    return picked


def _path_told(sample: Sample) -> str:
    """What a sample tells of its path, spelt out, so that no change of it goes unseen."""
    metadata: Any = sample.metadata
    return repr([metadata.get(key) for key in ("leaf", "lifecycle")]) if isinstance(metadata, dict) else ""


def postprocess(samples: list[Sample], session_metadata: dict[str, Any], hook: str | Hook) -> list[Sample]:
    """Run a post-processor; AssemblyError names it if it raises or returns anything but samples, each once."""
    function = resolve_hook("sample_postprocessor", hook, POSTPROCESSORS)
    return _run(function, samples, session_metadata, f"sample_postprocessor {hook_name(hook)}")


def _run(hook: Hook, samples: list[Sample], session_metadata: dict[str, Any], place: str) -> list[Sample]:
    try:
        result: Any = hook(list(samples), session_metadata)
    except Exception as error:
        raise AssemblyError(f"{place}: raised {type(error).__name__}: {error}") from error
    if inspect.iscoroutine(result):
        result.close()
        raise AssemblyError(f"{place}: is asynchronous; a hook is a plain function")
    if not isinstance(result, list) or not all(isinstance(sample, Sample) for sample in result):
        raise AssemblyError(f"{place}: returned {type(result).__name__}, not a list of samples")
    if len({id(sample) for sample in result}) != len(result):
        raise AssemblyError(f"{place}: returned a sample twice")
    return result


def _twins(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return b["id"] in a["concurrent_with"] or a["id"] in b["concurrent_with"]


def _rank(sample: Sample) -> tuple[int, int]:
    leaf = sample.metadata["leaf"]
    return len(leaf["path_node_ids"]), leaf["node_id"]
