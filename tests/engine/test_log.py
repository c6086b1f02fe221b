"""What an engine remembers of its past."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from miles_sim.engine.engine import Engine
from miles_sim.engine.log import Attempts
from miles_sim.engine.prompt import Prompt
from miles_sim.engine.sampling import Sampling

Make = Callable[..., Engine]


def ask(engine: Engine, count: int) -> None:
    for n in range(count):
        engine.submit(Prompt((n % 1000 + 1,), ""), Sampling(max_new_tokens=2), endpoint="generate")


def test_without_bounds_all_is_kept(make_engine: Make) -> None:
    engine = make_engine()
    ask(engine, 50)
    assert len(engine.generations) == 50


@pytest.mark.parametrize("keep", [0, 3])
def test_a_bound_keeps_at_least_the_last_and_at_most_twice_that(make_engine: Make, keep: int) -> None:
    bounded, whole = make_engine(ledger={"keep": keep}), make_engine()
    for n in range(1, 30):
        for engine in (bounded, whole):
            engine.submit(Prompt((n,), ""), Sampling(max_new_tokens=2), endpoint="generate")
        assert min(n, keep) <= len(bounded.generations) <= 2 * keep
        if keep:
            assert bounded.generations[-min(n, keep) :] == whole.generations[-min(n, keep) :]


def test_a_spool_has_every_generation_a_line(make_engine: Make, tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    engine = make_engine(ledger={"keep": 1, "spool": str(file)})
    ask(engine, 10)
    engine.close()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 10
    assert lines[-1]["id"] == engine.generations[-1].id


def test_attempts_are_counted_for_so_many_questions_and_the_oldest_is_forgotten() -> None:
    attempts = Attempts(2)
    assert [attempts.next(question) for question in (b"a", b"b", b"a", b"c", b"a", b"b")] == [0, 0, 1, 0, 2, 0]
    assert [Attempts(None).next(b"a") for _ in range(2)] == [0, 0]


def test_where_all_is_kept_equal_prompts_are_kept_once(make_engine: Make) -> None:
    def asked(engine: Engine) -> list[Prompt]:
        prompts = [Prompt((1, 2, 3), text) for text in ("go", "go", "stop")]
        return [engine.submit(one, Sampling(max_new_tokens=2), endpoint="generate").asked.prompt for one in prompts]

    first, again, other = asked(make_engine())
    assert first is again is not other
    first, again, _ = asked(make_engine(ledger={"keep": 3}))
    assert first is not again
