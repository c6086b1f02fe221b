"""Time that passes for the work done, never for the wall: the same request always took the same time."""

from dataclasses import dataclass

EPOCH = 1_767_225_600
"""Unix seconds (2026-01-01) at which every request is said to have arrived."""


@dataclass(frozen=True)
class Pace:
    """Seconds for each kind of work."""

    request: float = 0.01
    prefill_token: float = 0.000_1
    decode_step: float = 0.01
    """One forward pass that gives an id, or, with speculative decoding, one verify step."""


@dataclass(frozen=True)
class Timing:
    """When a request was done."""

    latency: float
    """Seconds from arrival to answer, six decimals."""

    @property
    def sent_at(self) -> float:
        return EPOCH + self.latency

    @property
    def created(self) -> int:
        return int(self.sent_at)


def timing(*, prefilled: int, decode_steps: int, pace: Pace = Pace()) -> Timing:
    """`prefilled`: prompt ids that were not cached. `decode_steps`: forward passes after the prefill."""
    seconds = pace.request + prefilled * pace.prefill_token + decode_steps * pace.decode_step
    return Timing(round(seconds, 6))
