"""Counters that the engine keeps per generation, summed over the generations of a sample."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from miles_sim.rollout.errors import AssemblyError

SPELLINGS: tuple[tuple[str, str], ...] = (
    ("spec_num_correct_drafts", "spec_num_proposed_drafts"),
    ("spec_accepted_drafts", "spec_proposed_drafts"),
    ("spec_accept_token_num", "spec_draft_token_num"),
)
"""(accepted, drafted) as SGLang has named them: since 0.5.12, in 0.5.11, from 0.5.6 to 0.5.10."""


@dataclass(frozen=True)
class SpecInfo:
    """Speculative decoding of one or more generations; field names are miles'.

    Accepted drafts exclude each step's bonus id; completion ids include it, and the id of the prefill.
    """

    spec_accept_token_num: int = 0
    spec_draft_token_num: int = 0
    spec_verify_ct: int = 0
    completion_token_num: int = 0
    uncounted_token_num: int = 0
    """Completion ids of generations that took verify steps of which the engine sent no count."""

    @property
    def accept_rate(self) -> float | None:
        """Accepted / drafted; None where no count of drafts came, or none was drafted."""
        return self.spec_accept_token_num / self.spec_draft_token_num if self.spec_draft_token_num else None

    @property
    def accept_length(self) -> float | None:
        """Completion ids per verify step; None where no count of steps came, or none was taken."""
        counted = self.completion_token_num - self.uncounted_token_num
        return counted / self.spec_verify_ct if self.spec_verify_ct else None

    def __add__(self, other: "SpecInfo") -> "SpecInfo":
        return SpecInfo(
            self.spec_accept_token_num + other.spec_accept_token_num,
            self.spec_draft_token_num + other.spec_draft_token_num,
            self.spec_verify_ct + other.spec_verify_ct,
            self.completion_token_num + other.completion_token_num,
            self.uncounted_token_num + other.uncounted_token_num,
        )

    def to_dict(self) -> dict[str, int]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "SpecInfo":
        """Absent counters are 0; a key that is none of them is an AssemblyError."""
        return cls(**_counts(data, cls, "spec_info"))


@dataclass(frozen=True)
class PrefixCacheInfo:
    """Prompt ids of one or more generations, and how many of them the engine had cached."""

    cached_tokens: int = 0
    total_prompt_tokens: int = 0

    @property
    def hit_rate(self) -> float | None:
        """Cached / prompt ids; None without a prompt."""
        return self.cached_tokens / self.total_prompt_tokens if self.total_prompt_tokens else None

    def __add__(self, other: "PrefixCacheInfo") -> "PrefixCacheInfo":
        return PrefixCacheInfo(
            self.cached_tokens + other.cached_tokens, self.total_prompt_tokens + other.total_prompt_tokens
        )

    def to_dict(self) -> dict[str, int]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "PrefixCacheInfo":
        """Absent counters are 0; a key that is none of them is an AssemblyError."""
        return cls(**_counts(data, cls, "prefix_cache_info"))


def read_spec(meta_info: Mapping[str, Any]) -> SpecInfo:
    """The speculative counters of one generation, under whichever spelling the engine's release has.

    Counters that are not there count 0. SGLang leaves all of them out where no verify step ran, which is
    so for at most one completion id (the prefill's). Counters that contradict one another are not there, nor is one of
    accepted and drafted that comes without the other: what they would add to a rate is not known.
    """
    accepted, drafted = next((pair for pair in SPELLINGS if pair[0] in meta_info or pair[1] in meta_info), SPELLINGS[0])
    completion = count(meta_info, "completion_tokens")
    took = count(meta_info, accepted), count(meta_info, drafted), count(meta_info, "spec_verify_ct")
    both = meta_info.get(accepted) is not None and meta_info.get(drafted) is not None
    reported = meta_info.get("spec_verify_ct") is not None
    if not both:
        took = 0, 0, took[2]
    elif reported and _contradict(*took):
        took, reported = (0, 0, 0), False
    return SpecInfo(
        spec_accept_token_num=took[0],
        spec_draft_token_num=took[1],
        spec_verify_ct=took[2],
        completion_token_num=completion,
        uncounted_token_num=completion if completion > 1 and not reported else 0,
    )


def _contradict(accepted: int, drafted: int, steps: int) -> bool:
    """More accepted than drafted, or drafts of no verify step."""
    return accepted > drafted or (drafted > 0 and not steps)


def read_prefix_cache(meta_info: Mapping[str, Any]) -> PrefixCacheInfo:
    """The prefix-cache counters of one generation; zeros unless the engine sent both of them, and not more cached ids
    than prompt ids."""
    if meta_info.get("cached_tokens") is None or meta_info.get("prompt_tokens") is None:
        return PrefixCacheInfo()
    cached, prompt = count(meta_info, "cached_tokens"), count(meta_info, "prompt_tokens")
    return PrefixCacheInfo(cached, prompt) if cached <= prompt else PrefixCacheInfo()


def count(data: Mapping[str, Any], name: str, place: str = "meta_info") -> int:
    """`data[name]` as a count, 0 where absent; AssemblyError for what is not a whole number of at least 0."""
    value = data.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise AssemblyError(f"{place}.{name}: {value!r} is not a whole number of at least 0")
    return value


def _counts(data: Mapping[str, Any], kind: type[Any], place: str) -> dict[str, int]:
    names = kind.__dataclass_fields__
    if unknown := sorted(set(data) - set(names)):
        raise AssemblyError(f"{place}.{unknown[0]}: not one of {list(names)}")
    return {name: count(data, name, place) for name in names}
