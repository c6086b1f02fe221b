"""Train data for each data-parallel rank: whole rollouts a step, the same number of micro-batches on every rank."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from miles_sim.rollout.errors import BatchError


def split(
    data: Mapping[str, Sequence[Any]],
    steps: Sequence[Sequence[int]],
    *,
    num_rollouts: Sequence[int],
    dp_size: int,
    micro_batch_size: int | None = None,
    max_tokens: int | None = None,
) -> list[dict[str, Any]]:
    """One shard a rank, of all columns of `data`, whichever they are, and of how to go through them.

    `steps`: the rows of each training step, and `num_rollouts` of how many rollouts they are (`batch.trim`).

    `partition`: rows of `data`, in the shard's order. `total_lengths`: ids of each. `micro_batch_indices`: rows of the
    shard, a list for each micro-batch; `num_microbatches`: of each step, the same on every rank; `num_rollouts`: of
    each step, all ranks together. Siblings stand in one step, on any rank: `rollout_mask_sums` holds them together.

    `max_tokens`: most ids of a micro-batch of several rows. `micro_batch_size`: rows of one, more only where rows do
    not go evenly into the ranks; not both. BatchError for a step that gives a rank nothing to do, or does not fit
    `max_tokens`.
    """
    _check(dp_size=dp_size, micro_batch_size=micro_batch_size, max_tokens=max_tokens)
    lengths = [len(tokens) for tokens in data["tokens"]]
    ranks: list[list[list[int]]] = [[] for _ in range(dp_size)]
    counts = []
    for number, rows in enumerate(steps):
        try:
            bins = _micro_batches(rows, lengths, dp_size, micro_batch_size, max_tokens)
        except BatchError as error:
            raise BatchError(f"step {number}: {error}") from None
        counts.append(len(bins) // dp_size)
        weights = [sum(lengths[row] for row in micro_batch) for micro_batch in bins]
        for rank, own in enumerate(balanced(weights, dp_size, most=counts[-1])):
            ranks[rank] += [bins[n] for n in sorted(own)]
    return [_shard(data, own, lengths, counts, num_rollouts) for own in ranks]


def _shard(
    data: Mapping[str, Sequence[Any]],
    micro_batches: Sequence[Sequence[int]],
    lengths: Sequence[int],
    counts: Sequence[int],
    num_rollouts: Sequence[int],
) -> dict[str, Any]:
    partition = [row for micro_batch in micro_batches for row in micro_batch]
    indices, at = [], 0
    for micro_batch in micro_batches:
        indices.append(list(range(at, at + len(micro_batch))))
        at += len(micro_batch)
    return {
        **{name: [column[row] for row in partition] for name, column in data.items()},
        "partition": partition,
        "total_lengths": [lengths[row] for row in partition],
        "micro_batch_indices": indices,
        "num_microbatches": list(counts),
        "num_rollouts": list(num_rollouts),
    }


def _micro_batches(
    rows: Sequence[int], lengths: Sequence[int], dp_size: int, micro_batch_size: int | None, max_tokens: int | None
) -> list[list[int]]:
    """`rows` in a multiple of `dp_size` bins, none of them empty, about as few as the limits let there be."""
    most = len(rows) // dp_size
    if not most:
        raise BatchError(f"{len(rows)} rows are fewer than dp_size={dp_size}")
    own = [lengths[row] for row in rows]
    least = 1 if micro_batch_size is None else -(-len(rows) // (micro_batch_size * dp_size))
    if max_tokens is not None:
        least = max(least, -(-sum(own) // (max_tokens * dp_size)))
    for count in _counts(least, most):
        bins = balanced(own, count * dp_size, most=-(-len(rows) // (count * dp_size)) if max_tokens is None else None)
        if max_tokens is None or all(len(b) == 1 or sum(own[n] for n in b) <= max_tokens for b in bins):
            return [[rows[n] for n in b] for b in bins]
    raise BatchError(
        f"{len(rows)} rows of {sum(own)} ids do not go into a multiple of dp_size={dp_size} micro-batches "
        f"of at most max_tokens={max_tokens}"
    )


def _counts(least: int, most: int) -> Iterator[int]:
    """Counts to try: one by one while small, in wider steps later, so that there are few however many rows."""
    count = min(least, most)
    while count < most:
        yield count
        count += max(count // 32, 1)
    yield most


def balanced(weights: Sequence[int], parts: int, *, most: int | None = None) -> list[list[int]]:
    """Places of `weights` in `parts` lists of about equal sums, none empty: the heaviest first, into the lightest.

    `most`: of each part. Ties go by place. Needs as many weights as parts, and no more than `most` lets in.
    """
    found: list[list[int]] = [[] for _ in range(parts)]
    lightest = [(0, 0, part) for part in range(parts)]
    for place in sorted(range(len(weights)), key=lambda place: (-weights[place], place)):
        total, count, part = heapq.heappop(lightest)
        found[part].append(place)
        if most is None or count + 1 < most:
            heapq.heappush(lightest, (total + weights[place], count + 1, part))
    return found


def _check(**sizes: int | None) -> None:
    for name, value in sizes.items():
        if value is None and name != "dp_size":
            continue
        if type(value) is not int or value < 1:
            raise BatchError(f"{name}: {value!r} is not a whole number of at least 1")
    if sizes["micro_batch_size"] is not None and sizes["max_tokens"] is not None:
        raise BatchError(f"micro_batch_size: {sizes['micro_batch_size']} beside max_tokens; one of them at most")
