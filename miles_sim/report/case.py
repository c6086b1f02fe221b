"""One case as plain text, about sixty lines at most: for the console, for snapshots, for failures.

The same scenario, seed and target give the same text, whatever the clock, the ports and the order of arrival.
"""

from miles_sim.engine.settings import EngineSettings
from miles_sim.report.fired import fired_rows
from miles_sim.report.samples import brief_lines, sample_lines
from miles_sim.report.text import columns, cut, digest, number, scrub
from miles_sim.report.tree import SHOWN_ROLLOUTS, tree_lines
from miles_sim.targets.observation import BatchView, Observation
from miles_sim.tokenizer import ByteTokenizer
from miles_sim.verify.rule import Case

FORMAT = "miles-sim case/1"
BRIEF_ROLLOUTS = 4
"""Rollouts of one case that are shown at all; those beyond are told by one digest."""


def case_text(case: Case) -> str:
    """The whole case, ending in a line end: header, tree, samples, batch, what was left behind."""
    tokenizer = ByteTokenizer(case.scenario.engine.tokenizer)
    blocks = [_header(case), tree_lines(case)]
    blocks += [sample_lines(rollout, tokenizer) for rollout in case.rollouts[:SHOWN_ROLLOUTS]]
    blocks += [brief_lines(rollout) for rollout in case.rollouts[SHOWN_ROLLOUTS:BRIEF_ROLLOUTS]]
    if len(case.rollouts) > BRIEF_ROLLOUTS:
        rest = [line for rollout in case.rollouts[BRIEF_ROLLOUTS:] for line in brief_lines(rollout)]
        blocks.append([f"… {len(case.rollouts) - BRIEF_ROLLOUTS} more rollouts, lines and digest: {digest(rest)}"])
    blocks += [columns(fired_rows(case)), _end_lines(case.observation)]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _header(case: Case) -> list[str]:
    scenario = case.scenario
    return [
        FORMAT,
        f"{scenario.name}: {scenario.title}",
        f"session {case.session}, seed {scenario.seed}, {_engine(scenario.engine)}",
    ]


def _engine(settings: EngineSettings) -> str:
    spec = settings.speculative
    speculative = "no speculative decoding" if spec is None else f"{spec.algorithm} with {spec.draft_tokens} draft ids"
    return f"{settings.profile}, {settings.tokenizer}, {speculative}"


def _end_lines(observation: Observation) -> list[str]:
    left = [("sessions", observation.sessions_open), ("requests", observation.requests_open)]
    told = ", ".join(f"{name} {'untold' if count is None else count}" for name, count in left)
    return columns([*_batch_rows(observation.batch), ["left open", told]])


def _batch_rows(batch: BatchView | None) -> list[list[str]]:
    if batch is None:
        return []
    if batch.error is not None:
        return [["batch", f"refused by {batch.error.type}: {cut(scrub(batch.error.message), 160)}"]]
    rows: list[list[str]] = []
    if batch.train_data is not None:
        told = [f"{name} {_column(batch.train_data[name])}" for name in sorted(batch.train_data)]
        rows += _wrapped("train data", told)
    if batch.metrics is not None:
        rows += _wrapped("metrics", [f"{name} {number(batch.metrics[name])}" for name in sorted(batch.metrics)])
    return rows


def _column(value: object) -> str:
    if isinstance(value, list | tuple) and all(isinstance(entry, int | float | None) for entry in value):
        text = repr(list(value))
        return text if len(text) <= 48 else digest(value)
    return digest(value) if isinstance(value, list | tuple) else cut(repr(value), 40)


def _wrapped(name: str, entries: list[str], width: int = 104) -> list[list[str]]:
    """`entries` in as few rows as they need, the first under `name`."""
    lines: list[str] = []
    for entry in entries:
        if lines and len(lines[-1]) + len(entry) + 2 <= width:
            lines[-1] += f", {entry}"
        else:
            lines.append(entry)
    return [[name if not number_ else "", line] for number_, line in enumerate(lines)]
