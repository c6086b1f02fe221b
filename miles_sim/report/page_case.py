"""What the HTML page shows of one case, as plain data: trees, samples token by token, counters beside the ledger's."""

from collections.abc import Sequence
from typing import Any

from miles_sim.report.marks import pieces
from miles_sim.report.samples import aligned, authors, figures, sample_head, segments
from miles_sim.report.text import number, scrub
from miles_sim.report.tree import tree_lines
from miles_sim.targets.observation import BatchView, SampleView
from miles_sim.tokenizer import ByteTokenizer
from miles_sim.verify.alignment import Alignment
from miles_sim.verify.report import Result
from miles_sim.verify.rule import Case, RolloutCase

SHOWN_ROLLOUTS = 4
"""Rollouts of one case that are shown; of the others, those that something is wrong with."""
SHOWN_FINDINGS = 20
"""Findings of one contract on one case that are shown."""


def case_data(case: Case, wrong: Sequence[Result]) -> dict[str, Any]:
    """`wrong`: what is violated in it, or known to be."""
    tokenizer = ByteTokenizer(case.scenario.engine.tokenizer)
    meant = {finding.rollout for result in wrong for finding in result.findings}
    shown = [r for r in case.rollouts if r.number < SHOWN_ROLLOUTS or r.number in meant]
    return {
        "title": case.scenario.title,
        "facts": f"session {case.session}, seed {case.scenario.seed}, {case.scenario.engine.profile}, "
        f"{case.scenario.engine.tokenizer}",
        "tree": tree_lines(case),
        "wrong": [_wrong(result) for result in wrong],
        "rollouts": [_rollout(rollout, wrong, tokenizer) for rollout in shown],
        "more": len(case.rollouts) - len(shown),
        "batch": _batch(case.observation.batch),
    }


def _wrong(result: Result) -> dict[str, Any]:
    return {
        "contract": result.contract,
        "verdict": result.verdict.value,
        "message": result.message,
        "repro": result.repro,
        "findings": [f.model_dump(mode="json", exclude={"tokens"}) for f in result.findings[:SHOWN_FINDINGS]],
        "more": max(0, len(result.findings) - SHOWN_FINDINGS),
    }


def _rollout(rollout: RolloutCase, wrong: Sequence[Result], tokenizer: ByteTokenizer) -> dict[str, Any]:
    error = rollout.view.error
    return {
        "number": rollout.number,
        "error": f"{error.type}: {scrub(error.message)}" if error else "",
        "samples": [
            _sample(rollout, position, sample, _marks(wrong, rollout.number, position), tokenizer)
            for position, sample in enumerate(rollout.samples)
        ],
    }


def _marks(wrong: Sequence[Result], rollout: int, sample: int) -> set[int]:
    """Positions that some finding means."""
    stretches = [
        stretch
        for result in wrong
        for finding in result.findings
        if (finding.rollout, finding.sample) == (rollout, sample)
        for stretch in finding.tokens
    ]
    return {at for begin, end in stretches for at in range(begin, end)}


def _sample(
    rollout: RolloutCase, position: int, sample: SampleView, marks: set[int], tokenizer: ByteTokenizer
) -> dict[str, Any]:
    path = aligned(sample, rollout, tokenizer)
    hues = {step: hue for hue, step in enumerate(authors(rollout).values())}
    return {
        "head": sample_head(position, sample),
        "segments": [
            {
                "who": part.who,
                "hue": hues.get(part.who, -1),
                "ids": part.end - part.start,
                "missing": part.missing,
                "tokens": _tokens(sample, part.start, part.end, path, marks, tokenizer),
            }
            for part in segments(path, authors(rollout))
        ],
        "counters": _counters(sample, path),
    }


def _tokens(
    sample: SampleView, start: int, end: int, path: Alignment, marks: set[int], tokenizer: ByteTokenizer
) -> list[list[Any]]:
    """`[text, first id, position, trained, marked, logprob]` of each piece; None for what the prompt has not."""
    border = path.response_start
    said = sample.rollout_log_probs
    found = []
    for piece in pieces(sample.tokens[start:end], start, tokenizer):
        at = piece.at - border
        trained = _trained(sample, at) if at >= 0 else 0
        logprob = said[at] if said is not None and 0 <= at < len(said) else None
        found.append([piece.text, sample.tokens[piece.at], piece.at, trained, int(piece.holds(marks)), logprob])
    return found


def _trained(sample: SampleView, at: int) -> int:
    if sample.remove_sample:
        return 0
    mask = sample.loss_mask
    return 1 if mask is None else int(at < len(mask) and bool(mask[at]))


def _counters(sample: SampleView, path: Alignment) -> list[list[Any]]:
    """`[name, what the sample says, what the ledger says, whether they agree]`."""
    rows = [
        (name, number(told), number(true), told == true or number(told) == number(true))
        for name, told, true in figures(sample, path.generations)
    ]
    cache = sample.prefix_cache_info
    if cache is not None:
        sums = (
            ("cached prompt ids", cache.cached_tokens, sum(g.cached_tokens for g in path.generations)),
            ("prompt ids", cache.total_prompt_tokens, sum(len(g.prompt_ids) for g in path.generations)),
        )
        rows += [(name, str(told), str(true), told == true) for name, told, true in sums]
    return [list(row) for row in rows]


def _batch(batch: BatchView | None) -> list[list[str]]:
    if batch is None:
        return []
    if batch.error is not None:
        return [["refused", f"{batch.error.type}: {scrub(batch.error.message)}"]]
    return [[name, number(value)] for name, value in sorted((batch.metrics or {}).items())]
