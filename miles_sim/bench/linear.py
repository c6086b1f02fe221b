"""What a chat request costs an engine, by the length of its prompt and of its reply."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

import orjson

from miles_sim.bench.growth import per_doubling
from miles_sim.engine.engine import Engine
from miles_sim.engine.flight import at_once
from miles_sim.engine.settings import EngineSettings, LedgerSettings
from miles_sim.reply import Reply

PROMPTS = (1_000, 2_000, 4_000, 8_000)
"""Prompt ids; the reply has `SHORT`."""
REPLIES = (256, 512, 1_024, 2_048)
"""Sampled ids, with logprobs and meta_info; the prompt has `SHORT` ids."""
SHORT = 16


@dataclass(frozen=True)
class Point:
    """One length of prompt or reply."""

    tokens: int
    microseconds: float
    """CPU time of this process for one request, the least of all rounds."""


@dataclass(frozen=True)
class LinearBench:
    """`*_growth`: by which factor twice the length costs more (2.0: linear, less where all cost something)."""

    prompt: list[Point]
    prompt_growth: float
    reply: list[Point]
    reply_growth: float

    def document(self) -> dict[str, Any]:
        return asdict(self)


def measure(*, rounds: int, requests: int = 16) -> LinearBench:
    """`rounds`: times that all points are measured, by turns; `requests`: asked each time, each another prompt."""
    numbers = count()
    lengths = [*((prompt, SHORT) for prompt in PROMPTS), *((SHORT, reply) for reply in REPLIES)]
    engines = [_engine() for _ in lengths]
    least = [float("inf")] * len(lengths)
    for _ in range(rounds):
        for place, (engine, (prompt, reply)) in enumerate(zip(engines, lengths, strict=True)):
            bodies = [_body(next(numbers), prompt, reply) for _ in range(requests)]
            least[place] = min(least[place], _seconds(engine, bodies) / requests)
    found = [round(seconds * 1e6, 1) for seconds in least]
    prompts = [Point(*point) for point in zip(PROMPTS, found, strict=False)]
    replies = [Point(*point) for point in zip(REPLIES, found[len(PROMPTS) :], strict=True)]
    return LinearBench(prompts, _growth(prompts), replies, _growth(replies))


def _engine() -> Engine:
    ledger = LedgerSettings(keep=16, questions=16)
    return Engine(EngineSettings(ledger=ledger, cache_tokens=100_000, default_reply=Reply(tokens=4_096)), seed=0)


def _body(number: int, prompt: int, reply: int) -> bytes:
    """Another one for each number up to 65,535; after that they come again."""
    numbered = number // 256 % 256, number % 256
    return orjson.dumps(
        {
            "model": "sim",
            "messages": [{"role": "user", "content": "hello"}],
            "input_ids": [*numbered, *((number * 7 + place * place) % 256 for place in range(2, prompt))],
            "max_tokens": reply,
            "logprobs": True,
            "return_meta_info": True,
        }
    )


def _seconds(engine: Engine, bodies: Sequence[bytes]) -> float:
    begin = time.process_time()
    for body in bodies:
        at_once(engine.chat(body))
    return time.process_time() - begin


def _growth(points: Sequence[Point]) -> float:
    return round(per_doubling([point.tokens for point in points], [point.microseconds for point in points]), 3)
