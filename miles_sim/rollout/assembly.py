"""One path of generations, root to leaf, becomes one sample: a single pass, linear in the path's own ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from miles_sim.rollout.errors import AssemblyError
from miles_sim.rollout.record import Record
from miles_sim.rollout.replay import REPLAY_FIELDS, opens_gap, stitch
from miles_sim.rollout.sample import Sample, Status, generation_counters, status_of
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ChatTokenizer


@dataclass(frozen=True)
class Turn:
    """One generation of a path, and how much of it the sample holds."""

    record: Record
    kept: int
    """Sampled ids in the sample, from the first on."""
    reason: str | None = None
    """Why the sample lacks the rest of them; None where it lacks none."""
    whole: bool = False
    """The sample lacks the generation altogether."""

    @property
    def start(self) -> int:
        """Where in the path's ids the sampled ones begin."""
        return len(self.record.prompt_ids)

    @property
    def end(self) -> int:
        return self.start + self.kept


def assemble(
    records: Sequence[Record], *, settings: RolloutSettings, tokenizer: ChatTokenizer, max_seq_len: int | None
) -> Sample | None:
    """The sample of one path; None where not even the first generation fits into `max_seq_len` ids.

    Raises AssemblyError for records that do not continue one another, or that cannot be read.
    The sample ends with the last generation of which something fits, status `truncated` where later ids of
    the path were left out. Metadata: `lifecycle`, one entry a generation of the path; `dropped`, where sampled ids
    or generations were left out, generations (`turns`) and ids (`tokens`) by reason; `messages`, if asked for.
    """
    turns = plan(records, max_trim=tokenizer.max_trim_tokens, max_seq_len=max_seq_len)
    kept = [turn for turn in turns if not turn.whole]
    if not kept:
        return None
    sample = _joined(kept, tokenizer)
    for turn in kept:
        sample.observe(turn.record.meta_info, settings, turn.record.finish_reason)
    if any(turn.reason in ("max_seq_len", "replay_gap") for turn in turns):
        sample.status = Status.TRUNCATED
    ends = [(turn.record, turn.end) for turn in kept]
    for field in REPLAY_FIELDS:
        setattr(sample, field.sample, stitch(field, ends, len(sample.tokens), settings))
    sample.metadata = _metadata(turns, kept[-1].record, settings)
    return sample


def plan(records: Sequence[Record], *, max_trim: int, max_seq_len: int | None) -> list[Turn]:
    """What of each generation is kept, and why not the rest. Pure; checks that the records are one path."""
    last, reason = _reach(records)
    turns: list[Turn] = []
    known = 0
    for number, record in enumerate(records[: last + 1]):
        _check(record)
        if number == last:
            turns.append(Turn(record, len(record.output_ids)))
            break
        kept = _continued(record, records[number + 1], known, max_trim)
        turns.append(Turn(record, kept, "trailing_trim" if kept < len(record.output_ids) else None))
        known = turns[-1].end
    turns += [Turn(record, 0, reason, whole=True) for record in records[last + 1 :]]
    return turns if max_seq_len is None else _cut(turns, last, max_seq_len)


def _reach(records: Sequence[Record]) -> tuple[int, str | None]:
    """The last generation that can be trained on, and why none after it: what ended early is not extended."""
    for number, record in enumerate(records[:-1]):
        if status_of(record.finish_reason) is not Status.COMPLETED:
            return number, f"after_{record.finish_reason}"
        if opens_gap(record.meta_info, records[number + 1].meta_info):
            return number, "replay_gap"
    return len(records) - 1, None


def _check(record: Record) -> None:
    if not record.prompt_ids:
        raise AssemblyError(f"record {record.seq}: prompt_ids: empty")
    if len(record.output_ids) != len(record.log_probs):
        raise AssemblyError(
            f"record {record.seq}: log_probs: {len(record.log_probs)} entries for {len(record.output_ids)} output_ids"
        )


def _continued(record: Record, following: Record, known: int, max_trim: int) -> int:
    """How many of `record`'s sampled ids `following`'s prompt repeats.

    `known`: length of the path's ids before `record`. Only what `record` added is compared, so that a whole
    path costs its own length: `_joined` compares the last prompt as a whole.
    """
    start, prompt, output = len(record.prompt_ids), following.prompt_ids, record.output_ids
    place = f"record {following.seq}: prompt_ids"
    if list(prompt[known:start]) != list(record.prompt_ids[known:]):
        raise AssemblyError(f"{place}: differ from record {record.seq}'s within {known}..{start}")
    kept = _common(output, prompt[start : start + len(output)])
    if len(output) - kept > max_trim:
        raise AssemblyError(
            f"{place}: repeat {kept} of record {record.seq}'s {len(output)} sampled ids; at most {max_trim} may differ"
        )
    if len(prompt) <= start + kept:
        raise AssemblyError(f"{place}: add nothing to what record {record.seq} left")
    return kept


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix."""
    if list(a) == list(b):
        return len(a)
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _cut(turns: list[Turn], last: int, limit: int) -> list[Turn]:
    """Keep `limit` ids: the path ends within the last generation of which an id fits, or which is empty and fits."""
    if turns[last].end <= limit:
        return turns
    fitting = sum(turn.start + min(len(turn.record.output_ids), 1) <= limit for turn in turns[: last + 1])
    cut = [Turn(turn.record, 0, "max_seq_len", whole=True) for turn in turns[fitting : last + 1]] + turns[last + 1 :]
    if not fitting:
        return cut
    final = turns[fitting - 1]
    sampled = len(final.record.output_ids)
    # What was trimmed for the next turn's sake is back, as there is no next turn.
    kept = min(sampled, limit - final.start)
    return [*turns[: fitting - 1], Turn(final.record, kept, "max_seq_len" if kept < sampled else None), *cut]


def _joined(turns: Sequence[Turn], tokenizer: ChatTokenizer) -> Sample:
    """Ids, mask, logprobs and text: each generation as sampled, what stands between two of them masked."""
    begin = turns[0].start
    tokens = list(turns[0].record.prompt_ids)
    mask: list[int] = []
    log_probs: list[float] = []
    texts: list[str] = []
    for turn in turns:
        between = turn.record.prompt_ids[len(tokens) :]
        sampled = turn.record.output_ids[: turn.kept]
        tokens += between
        tokens += sampled
        mask += [0] * len(between)
        mask += [1] * len(sampled)
        log_probs += [0.0] * len(between)
        log_probs += turn.record.log_probs[: turn.kept]
        texts += [tokenizer.decode(part) for part in (between, sampled) if part]
    final = turns[-1]
    if tokens[: final.start] != list(final.record.prompt_ids):
        drift = _common(tokens, final.record.prompt_ids)
        raise AssemblyError(f"record {final.record.seq}: prompt_ids: differ from the path before it at {drift}")
    return Sample(
        tokens=tokens,
        response="".join(texts),
        response_length=len(tokens) - begin,
        loss_mask=mask,
        rollout_log_probs=log_probs,
    )


def _metadata(turns: Sequence[Turn], final: Record, settings: RolloutSettings) -> dict[str, Any]:
    metadata: dict[str, Any] = {"lifecycle": [_segment(n, turn, settings) for n, turn in enumerate(turns, start=1)]}
    if dropped := _dropped(turns):
        metadata["dropped"] = dropped
    if settings.record_messages:
        metadata["messages"] = [*final.request_messages, final.message]
    return metadata


def _segment(number: int, turn: Turn, settings: RolloutSettings) -> dict[str, Any]:
    """One generation of the path. Its counters stand here too, so that metrics count what leaves share once.

    The sampled ids in the sample are `tokens[span[0]:span[1]]`. No wall clock: a result is its seed's alone.
    """
    record = turn.record
    spec, prefix = generation_counters(record.meta_info, settings)
    segment = {
        "turn": number,
        "node_id": record.seq,
        "response_id": record.response_id,
        "finish_reason": record.finish_reason,
        "sampled": len(record.output_ids),
        "span": None if turn.whole else [turn.start, turn.end],
        "latency": record.meta_info.get("e2e_latency"),
        "spec_info": spec.to_dict(),
        "prefix_cache_info": prefix.to_dict(),
    }
    return segment if turn.reason is None else {**segment, "dropped": turn.reason}


def _dropped(turns: Sequence[Turn]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for turn in turns:
        if turn.reason is not None:
            entry = counts.setdefault(turn.reason, {"turns": 0, "tokens": 0})
            entry["turns"] += turn.whole
            entry["tokens"] += len(turn.record.output_ids) - turn.kept
    return counts
