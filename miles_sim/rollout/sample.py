"""The training sample. Fields and their names are miles' (`miles.utils.types.Sample`), so that both compare."""

import copy
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from miles_sim.rollout.counters import PrefixCacheInfo, SpecInfo, read_prefix_cache, read_spec
from miles_sim.rollout.errors import AssemblyError
from miles_sim.rollout.settings import RolloutSettings

Rows = npt.NDArray[np.int32]
"""A replay array of shape (len(tokens) - 1, layers, k): row i belongs to the pass over token i."""

RESERVED = (
    "leaf",
    "accumulated_token_ids",
    "tito_session_mismatch",
    "lifecycle",
    "messages",
    "dropped",
    "agent_error",
    "engine_error",
    "halted",
)
"""Metadata keys that assembly and generate own: what an agent returns under them is left out."""

PER_TOKEN = ("loss_mask", "rollout_log_probs", "teacher_log_probs", "opd_reverse_kl")
REPLAY = ("rollout_routed_experts", "rollout_indexer_topk")


class Status(Enum):
    """How a sample ended. `PENDING` is an input's; nothing that was generated keeps it."""

    PENDING = "pending"
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"
    FAILED = "failed"


STATUS_OF: dict[str, Status] = {
    "stop": Status.COMPLETED,
    "tool_calls": Status.COMPLETED,
    "length": Status.TRUNCATED,
    "abort": Status.ABORTED,
}
"""Final status by finish reason. SGLang's protocol knows `content_filter` and `function_call`, its engine no others."""


@dataclass(frozen=True)
class AdapterRef:
    """The LoRA adapter a sample is bound to."""

    name: str
    slot: int


@dataclass(frozen=True)
class RewardSpec:
    """How one sample's response is scored."""

    rm_type: str | None = None
    custom_rm_path: str | None = None


_ATOMS = frozenset({bool, float, int, str, type(None), Status, SpecInfo, PrefixCacheInfo})
"""Types whose values do not change, nor does anything in them: two samples may hold one."""


@dataclass
class Sample:
    """One row of training data. `loss_mask` and all lists of floats index the response only."""

    group_index: int | None = None
    index: int | None = None
    rollout_id: int | None = None
    prompt: str | list[dict[str, Any]] = ""
    tokens: list[int] = field(default_factory=list)
    multimodal_inputs: dict[str, Any] | None = None
    multimodal_train_inputs: dict[str, Any] | None = None
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: float | dict[str, Any] | None = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list)
    rollout_log_probs: list[float] | None = None
    rollout_routed_experts: Rows | None = None
    rollout_indexer_topk: Rows | None = None
    remove_sample: bool = False
    teacher_log_probs: list[float] | None = None
    opd_reverse_kl: list[float] | None = None
    status: Status = Status.PENDING
    metadata: dict[str, Any] = field(default_factory=dict)
    generate_function_path: str | None = None
    train_metadata: dict[str, Any] | None = None
    adapter: AdapterRef | None = None
    reward_spec: RewardSpec | None = None
    routing_key: str | None = None
    non_generation_time: float = 0.0
    spec_info: SpecInfo = field(default_factory=SpecInfo)
    prefix_cache_info: PrefixCacheInfo = field(default_factory=PrefixCacheInfo)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Sample":
        """As ever, but that most fields need no look."""
        copied = object.__new__(type(self))
        memo[id(self)] = copied
        for name, value in vars(self).items():
            vars(copied)[name] = value if type(value) in _ATOMS else copy.deepcopy(value, memo)
        return copied

    @property
    def effective_id(self) -> int | None:
        """The rollout this sample counts for: `rollout_id`, else `index`; 0 is an id."""
        return self.rollout_id if self.rollout_id is not None else self.index

    @property
    def effective_response_length(self) -> int:
        """Trainable ids."""
        return self.response_length if self.loss_mask is None else sum(self.loss_mask)

    @property
    def oldest_weight_version(self) -> int | None:
        """The least numeric weight version; None where none is a number (an engine starts at `default`)."""
        return min((int(v) for v in self.weight_versions if v.isdecimal()), default=None)

    def observe(
        self, meta_info: Mapping[str, Any], settings: RolloutSettings, finish_reason: str | None = None
    ) -> None:
        """Add one generation's counters and weight versions, and take its status.

        `finish_reason`: as a chat choice gives it; None reads `meta_info.finish_reason.type`, as `/generate` gives it.
        """
        status = status_of(finish_reason if finish_reason is not None else _reason(meta_info))
        spec, prefix = generation_counters(meta_info, settings)
        versions = weight_versions(meta_info)
        self.spec_info += spec
        self.prefix_cache_info += prefix
        self.weight_versions.extend(versions)
        self.status = status

    def reset_for_retry(self) -> None:
        """Forget all that was generated, so that the prompt can be sampled again; status is aborted until it is."""
        kept = _KEPT_ON_RETRY
        for spec in fields(self):
            if spec.name not in kept:
                default = spec.default if spec.default_factory is MISSING else spec.default_factory()
                setattr(self, spec.name, default)
        self.metadata = {key: value for key, value in self.metadata.items() if key not in RESERVED}
        self.status = Status.ABORTED

    def validate(self) -> None:
        """AssemblyError unless all lengths agree and the mask is of zeros and ones."""
        if not 0 <= self.response_length <= len(self.tokens):
            raise AssemblyError(f"response_length: {self.response_length} is not in 0..len(tokens) {len(self.tokens)}")
        for name in PER_TOKEN:
            value = getattr(self, name)
            if value is not None and len(value) != self.response_length:
                raise AssemblyError(f"{name}: {len(value)} entries for response_length {self.response_length}")
        if self.loss_mask is not None and not set(self.loss_mask) <= {0, 1}:
            bad = next(entry for entry in self.loss_mask if entry not in (0, 1))
            raise AssemblyError(f"loss_mask: {bad!r} is not 0 or 1")
        for name in REPLAY:
            rows = getattr(self, name)
            if rows is not None and len(rows) != max(len(self.tokens) - 1, 0) + self._media_rows(name):
                raise AssemblyError(f"{name}: {len(rows)} rows for {len(self.tokens)} tokens, which need one less")

    def _media_rows(self, name: str) -> int:
        """Rows that media placeholders add where the engine expands each into several positions."""
        media = self.multimodal_train_inputs
        if name != "rollout_routed_experts" or not media:
            return 0
        told = [media.get(key) for key in ("mm_vision_num_patches", "mm_audio_num_tokens")]
        counts = [n for value in told if value is not None for n in value]
        extra = sum(int(n) - 1 for n in counts)
        rows = self.rollout_routed_experts
        return extra if rows is not None and len(rows) == len(self.tokens) - 1 + extra else 0

    def to_dict(self) -> dict[str, Any]:
        """Plain data under the field names, sharing nothing with the sample; numpy arrays stay arrays."""
        data = {spec.name: getattr(self, spec.name) for spec in fields(self)}
        plain = {name: asdict(value) if is_dataclass(value) else value for name, value in data.items()}  # type: ignore[arg-type]
        return {**copy.deepcopy(plain), "status": self.status.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Sample":
        """The inverse of `to_dict`; fields that are absent take their defaults, unknown ones are an AssemblyError."""
        if not isinstance(data, Mapping):
            raise AssemblyError(f"sample: {type(data).__name__} is not a mapping")
        names = {spec.name for spec in fields(cls)}
        if unknown := sorted(set(data) - names):
            raise AssemblyError(f"sample.{unknown[0]}: not a field of a sample")
        values = copy.deepcopy(dict(data))
        for name, value in values.items():
            _check_kind(name, value)
            if name in _READERS and value is not None:
                values[name] = _READERS[name](value)
        return cls(**values)


_NONE = type(None)
_COUNT, _TEXT, _LIST, _DICT, _ROWS = (int, _NONE), (str, _NONE), (list, _NONE), (dict, _NONE), (np.ndarray, _NONE)
_KINDS: dict[str, tuple[type, ...]] = {
    "group_index": _COUNT,
    "index": _COUNT,
    "rollout_id": _COUNT,
    "prompt": (str, list),
    "tokens": (list,),
    "multimodal_inputs": _DICT,
    "multimodal_train_inputs": _DICT,
    "response": (str,),
    "response_length": (int,),
    "reward": (int, float, dict, _NONE),
    "loss_mask": _LIST,
    "weight_versions": (list,),
    "rollout_log_probs": _LIST,
    "rollout_routed_experts": _ROWS,
    "rollout_indexer_topk": _ROWS,
    "remove_sample": (bool,),
    "teacher_log_probs": _LIST,
    "opd_reverse_kl": _LIST,
    "status": (str, Status),
    "metadata": (dict,),
    "generate_function_path": _TEXT,
    "train_metadata": _DICT,
    "adapter": _DICT,
    "reward_spec": _DICT,
    "routing_key": _TEXT,
    "non_generation_time": (int, float),
    "spec_info": (dict,),
    "prefix_cache_info": (dict,),
}
"""What a dump holds under each field; a data set's `label` may be anything."""


def _check_kind(name: str, value: Any) -> None:
    kinds = _KINDS.get(name)
    if kinds is None or (isinstance(value, kinds) and (type(value) is not bool or bool in kinds)):
        return
    allowed = ", ".join("None" if kind is _NONE else kind.__name__ for kind in kinds)
    raise AssemblyError(f"sample.{name}: {value!r:.80} is not {allowed}")


def _built(kind: type[Any], name: str) -> Any:
    """Reads a dataclass from its fields."""

    def read(value: Mapping[str, Any]) -> Any:
        try:
            return kind(**value)
        except TypeError as error:
            raise AssemblyError(f"sample.{name}: {value!r:.80}: {error}") from None

    return read


_KEPT_ON_RETRY = frozenset(
    """
    group_index index rollout_id prompt multimodal_inputs label metadata generate_function_path adapter
    reward_spec routing_key
    """.split()  # noqa: SIM905 - as short words they can be read
)


def status_of(finish_reason: Any) -> Status:
    """Final status of a generation; an unknown finish reason is an AssemblyError that names it."""
    status = STATUS_OF.get(finish_reason) if isinstance(finish_reason, str) else None
    if status is None:
        raise AssemblyError(f"finish_reason: {finish_reason!r} is not one of {list(STATUS_OF)}")
    return status


def read_status(value: Any) -> Status:
    """A status by its value; AssemblyError for one that does not exist."""
    try:
        return Status(value)
    except ValueError:
        raise AssemblyError(f"status: {value!r} is not one of {[status.value for status in Status]}") from None


_READERS: dict[str, Any] = {
    "status": read_status,
    "spec_info": SpecInfo.from_dict,
    "prefix_cache_info": PrefixCacheInfo.from_dict,
    "adapter": _built(AdapterRef, "adapter"),
    "reward_spec": _built(RewardSpec, "reward_spec"),
}


def generation_counters(meta_info: Mapping[str, Any], settings: RolloutSettings) -> tuple[SpecInfo, PrefixCacheInfo]:
    """What one generation adds to a sample's counters; no speculative ones while the setting is off."""
    spec = SpecInfo() if settings.speculative_algorithm is None else read_spec(meta_info)
    return spec, read_prefix_cache(meta_info)


def _reason(meta_info: Mapping[str, Any]) -> Any:
    reason = meta_info.get("finish_reason")
    return reason.get("type") if isinstance(reason, Mapping) else reason


def weight_versions(meta_info: Mapping[str, Any]) -> list[str]:
    """Versions that one generation was sampled under, in order: its spans where the engine sends them
    (SGLang since 0.5.20), else the one `weight_version`. AssemblyError for one that is no string."""
    spans = meta_info.get("weight_versions")
    if not isinstance(spans, list | None):
        raise AssemblyError(f"meta_info.weight_versions: {spans!r} is not a list")
    if spans:
        versions: list[Any] = [span.get("version") if isinstance(span, Mapping) else span for span in spans]
    else:
        single = meta_info.get("weight_version")
        versions = [] if single is None else [single]
    for version in versions:
        if not isinstance(version, str):
            raise AssemblyError(f"meta_info.weight_version: {version!r} is not a string")
    return versions
