"""The memory of an engine that serves for long, with a bounded ledger and a bounded prefix cache."""

import gc
import resource
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from miles_sim.engine.engine import Engine
from miles_sim.engine.flight import at_once
from miles_sim.engine.settings import EngineSettings, LedgerSettings

SAMPLES = 20
"""Times that the memory is looked at, in equal distances."""
BOUNDS = EngineSettings(ledger=LedgerSettings(keep=500, questions=5_000), cache_tokens=100_000)
_STATM = Path("/proc/self/statm")


@dataclass(frozen=True)
class MemoryBench:
    """Resident memory while small requests go on, in MB of 2**20 bytes."""

    requests: int
    rss_mb: list[float]
    """Resident memory of the process after each twentieth of the requests; where a system tells no more than the most
    there ever was, that."""
    growth_mb: float
    """What the last quarter of them has more than the second, on average: about 0 where memory is flat."""

    def document(self) -> dict[str, Any]:
        return asdict(self)


def measure(*, requests: int, told: Callable[[float], None] = lambda rss: None) -> MemoryBench:
    """Small chat requests in this process, each another question; `told` is called with each look at the memory."""
    engine = Engine(BOUNDS, seed=0)
    found: list[float] = []
    for number in range(requests):
        at_once(engine.chat(_body(number)))
        if (number + 1) * SAMPLES // requests > number * SAMPLES // requests:
            gc.collect()
            found.append(round(rss_mb(), 1))
            told(found[-1])
    return MemoryBench(requests, found, growth(found))


def growth(samples: list[float]) -> float:
    """The last quarter's mean less the second's; 0 for less than four samples."""
    quarter = len(samples) // 4
    if not quarter:
        return 0.0
    last, second = samples[-quarter:], samples[quarter : 2 * quarter]
    return round(sum(last) / quarter - sum(second) / quarter, 2)


def _body(number: int) -> bytes:
    return orjson.dumps(
        {
            "model": "sim",
            "messages": [{"role": "user", "content": f"question {number}"}],
            "input_ids": [*b"question ", *b"%d" % number],
            "max_tokens": 8,
            "logprobs": True,
            "return_meta_info": True,
        }
    )


def rss_mb() -> float:
    """Resident memory of this process in MB of 2**20 bytes."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * resource.getpagesize() / (1 << 20)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1 << 20) if sys.platform == "darwin" else most / (1 << 10)
