"""Faults of the payload layer: status 200, JSON, and a field of it that is not what the engine sampled."""

from miles_sim.faults.kinds.payload import counters, counts, logprobs, rows, shape, tokens, versions, words

__all__ = ["counters", "counts", "logprobs", "rows", "shape", "tokens", "versions", "words"]
