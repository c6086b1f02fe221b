"""`usage` of chat and completions (SGLang's usage_processor.py)."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from miles_sim.engine.wire import Progress, Want, Wire, thought_tokens


class Counts(NamedTuple):
    """Ids of one choice."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0


def counts_of(known: Progress, want: Want) -> Counts:
    """As far as the request has come. One that was aborted while it waited counts nothing."""
    if known.answered is not None and known.answered.from_queue:
        return Counts(completion=len(known.output_ids))
    thought = thought_tokens(known.output_ids, want)
    return Counts(known.prompt.size, len(known.output_ids), known.cached_tokens, thought)


def summed(choices: Iterable[Counts], n: int) -> Counts:
    """Of all choices: prompt and cached ids once for the `n` choices of each prompt."""
    counts = list(choices)
    if len(counts) == n == 1:
        return counts[0]
    firsts = counts[::n] if n > 0 else []
    return Counts(
        prompt=sum(c.prompt for c in firsts),
        completion=sum(c.completion for c in counts),
        cached=sum(c.cached for c in firsts),
        reasoning=sum(c.reasoning for c in counts),
    )


def usage(wire: Wire, counts: Counts, *, cache_report: bool | None = None) -> dict[str, Any]:
    """The object in the release's keys. `cache_report`: in place of the server's setting."""
    reported = wire.cache_report if cache_report is None else cache_report
    told = reported and (counts.cached > 0 or wire.profile.usage.nothing_cached == "zero")
    values = {
        "prompt_tokens": counts.prompt,
        "total_tokens": counts.prompt + counts.completion,
        "completion_tokens": counts.completion,
        "prompt_tokens_details": {"cached_tokens": counts.cached} if told else None,
        "reasoning_tokens": counts.reasoning if wire.counts_thoughts else 0,
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning} if counts.reasoning else None,
    }
    return {key: values[key] for key in wire.profile.usage.keys}
