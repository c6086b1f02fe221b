"""Speculative decoding: verify steps drawn by acceptance, and the counters that follow from them."""

from collections.abc import Sequence
from random import Random

from miles_sim.engine.settings import Speculative
from miles_sim.ledger import SpecTruth


def accepted_drafts(output_tokens: int, settings: Speculative, random: Random) -> list[int]:
    """Drafts accepted in each verify step of an output of that many ids.

    The prefill pass gives the first id and is no verify step; each step gives its accepted drafts and one bonus
    id. The last step may give more than the output keeps: it is counted whole, as SGLang does.
    """
    left = output_tokens - 1
    steps: list[int] = []
    while left > 0:
        accepted = _accepted(settings, random)
        steps.append(accepted)
        left -= accepted + 1
    return steps


def _accepted(settings: Speculative, random: Random) -> int:
    positions = settings.positions
    last = len(positions) - 1
    for position in range(settings.draft_tokens - 1):
        if random.random() >= positions[min(position, last)]:
            return position
    return settings.draft_tokens - 1


def truth(steps: Sequence[int], settings: Speculative) -> SpecTruth:
    """The counters of these steps.

    accepted: drafts alone, no bonus ids. drafted: steps × (draft_tokens - 1). histogram: grows with what is seen
    (sglang tokenizer_manager.py `_calculate_spec_decoding_metrics`, schedule_batch.py).
    """
    histogram = [0] * (max(steps, default=-1) + 1)
    for accepted in steps:
        histogram[accepted] += 1
    return SpecTruth(
        accepted=sum(steps),
        drafted=len(steps) * (settings.draft_tokens - 1),
        verify_ct=len(steps),
        histogram=tuple(histogram),
    )
