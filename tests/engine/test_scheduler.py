"""Requests in flight: time, queue, abort, pause and a change of weights, each told by what the flights see."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miles_sim.engine.engine import Engine
from miles_sim.engine.errors import RequestError
from miles_sim.engine.flight import Answered, Flight, Step, StillInFlightError, at_once
from miles_sim.engine.prompt import Prompt
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.scheduler import PauseMode
from miles_sim.engine.settings import EngineSettings

Make = Callable[..., Engine]
VIRTUAL = {"clock": "virtual"}
PASS = 10_000
"""Microseconds of a decode step."""


def ask(engine: Engine, *ids: int, rid: str | None = None, tokens: int = 6, **more: Any) -> Flight:
    prompt = Prompt(ids or (5, 6, 7), "")
    return engine.submit(prompt, Sampling(max_new_tokens=tokens), endpoint="generate", rid=rid, **more)


async def passes(flight: Flight, count: int) -> list[Step]:
    """The first so many steps."""
    seen = []
    async for step in flight:
        seen.append(step)
        if len(seen) == count:
            break
    return seen


def reason(answered: Answered) -> Any:
    return answered.generation.finish_reason


# Flights


def test_without_a_clock_a_flight_is_done_on_return_and_costs_no_turn_of_the_loop(make_engine: Make) -> None:
    engine = make_engine()
    flight = ask(engine)
    assert flight.done
    assert at_once(engine.answer(flight)).generation == engine.generations[0]


async def test_a_flight_can_be_awaited_and_iterated_by_many_at_any_time(make_engine: Make) -> None:
    engine = make_engine(latency=VIRTUAL, speculative={})
    flight = ask(engine, tokens=20)

    async def read() -> list[Step]:
        return [step async for step in flight]

    async def wait() -> Answered:
        return await flight

    one, two, answered = await asyncio.gather(read(), read(), wait())
    late = await read()
    assert one == two == late
    assert answered is one[-1].answered
    assert [step.finish_reason is not None for step in one] == [False] * (len(one) - 1) + [True]
    assert sum((step.delta_ids for step in one), ()) == one[-1].ids == answered.generation.output_ids
    assert one[-1].logprobs == answered.generation.logprobs
    spec = answered.generation.spec
    assert spec is not None
    assert len(one) == 1 + spec.verify_ct


@pytest.mark.parametrize("clock", ["off", "virtual", "real"])
async def test_the_clock_changes_no_answer(make_engine: Make, clock: str) -> None:
    quick = {"clock": clock, "request": 0.001, "prefill_token": 0, "decode_step": 0.001}
    answered = await ask(make_engine(latency=quick, speculative={}))
    expected = at_once(make_engine(speculative={}).answer(ask(make_engine(speculative={}))))
    assert answered.generation == expected.generation
    assert answered.timing.finished == 1000 + 1000 * (
        answered.generation.spec.verify_ct if answered.generation.spec else 0
    )


def test_what_has_to_wait_is_not_had_at_once(make_engine: Make) -> None:
    engine = make_engine()
    at_once(engine.scheduler.pause("retract"))
    with pytest.raises(StillInFlightError, match="paused"):
        at_once(engine.chat(b'{"messages": [{"role": "user", "content": "hi"}]}'))


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ("miles-rl-0.0.2", r"^Duplicate request IDs detected: \['mine'\]$"),
        ("sglang-0.5.11", "^Duplicate request ID detected: mine$"),
    ],
)
async def test_an_id_under_way_is_refused_and_leaves_no_trace(make_engine: Make, profile: str, words: str) -> None:
    engine = make_engine(profile=profile, latency=VIRTUAL)
    flight = ask(engine, rid="mine")
    with pytest.raises(RequestError, match=words):
        ask(engine, rid="mine")
    await flight
    assert (await ask(engine, rid="mine")).generation.attempt == 1


# Time


async def test_latency_is_prefill_of_what_is_not_cached_and_a_step_an_id(make_engine: Make) -> None:
    engine = make_engine(latency={**VIRTUAL, "request": 1, "prefill_token": 0.1, "decode_step": 0.01})
    first = await ask(engine, *range(1, 11), tokens=5)
    longer = await ask(engine, *range(1, 11), *first.generation.output_ids, 9, tokens=5)
    assert first.timing.latency == 1 + 10 * 0.1 + 4 * 0.01
    assert longer.generation.cached_tokens == 14
    assert longer.timing.first_token == 1_000_000 + 2 * 100_000
    assert engine.scheduler.now() == first.timing.finished + longer.timing.finished


async def test_requests_beyond_the_batch_limit_wait_for_a_place_in_order(make_engine: Make) -> None:
    latency = {**VIRTUAL, "request": 0, "prefill_token": 0, "decode_step": 0.01}
    engine = make_engine(latency=latency, max_running_requests=2)
    flights = [ask(engine, n, tokens=5) for n in (1, 2, 3, 4, 5)]
    assert [flight.phase for flight in flights] == ["running"] * 2 + ["waiting"] * 3
    done = [await flight for flight in flights]
    assert [answered.timing.started for answered in done] == [0, 0, 4 * PASS, 4 * PASS, 8 * PASS]
    assert done[4].timing.queue_time == 0.08
    assert [g.id for g in engine.generations] == [flight.id for flight in flights]


async def test_a_full_queue_refuses_with_503_and_the_releases_words(make_engine: Make) -> None:
    engine = make_engine(latency=VIRTUAL, max_running_requests=1, max_queued_requests=1)
    flights = [ask(engine, n) for n in (1, 2, 3)]
    refused = await flights[2]
    with pytest.raises(RequestError, match="The request queue is full") as error:
        refused.raise_for_status()
    assert (error.value.status, error.value.body["type"]) == (503, "503")
    assert [reason(await flight)["type"] for flight in flights[:2]] == ["length"] * 2


def test_limits_without_a_clock_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"max_running_requests needs latency\.clock virtual or real"):
        EngineSettings(max_running_requests=1)


# Abort


async def test_abort_of_a_running_request_gives_what_it_has_after_one_more_pass(make_engine: Make) -> None:
    engine = make_engine(latency=VIRTUAL)
    whole = at_once(make_engine().answer(ask(make_engine(), tokens=20))).generation
    flight = ask(engine, tokens=20)
    await passes(flight, 3)
    engine.scheduler.abort(flight.id)
    answered = await flight
    assert reason(answered) == {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
    assert answered.generation.output_ids == whole.output_ids[:4]
    assert answered.generation.logprobs == whole.logprobs[:4]
    assert not answered.from_queue


async def test_abort_of_a_waiting_request_answers_at_once_and_with_nothing(make_engine: Make) -> None:
    engine = make_engine(latency=VIRTUAL, max_running_requests=1)
    running, waiting = ask(engine, 1), ask(engine, 2)
    engine.scheduler.abort(waiting.id)
    assert waiting.answered is not None
    assert reason(waiting.answered) == {"type": "abort", "message": "Abort in waiting queue"}
    assert (waiting.answered.from_queue, waiting.answered.generation.output_ids) == (True, ())
    assert reason(await running)["type"] == "length"


async def test_abort_of_all_or_of_nobody(make_engine: Make) -> None:
    engine = make_engine(latency=VIRTUAL, max_running_requests=2)
    flights = [ask(engine, n, tokens=20) for n in (1, 2, 3)]
    engine.scheduler.abort("nobody")
    await passes(flights[0], 2)
    engine.scheduler.abort()
    done = [await flight for flight in flights]
    assert [reason(answered)["type"] for answered in done] == ["abort"] * 3
    assert [len(answered.generation.output_ids) for answered in done] == [3, 3, 0]
    assert engine.scheduler.idle


async def test_a_client_that_hangs_up_aborts_its_request_alone(make_engine: Make) -> None:
    engine = make_engine(latency=VIRTUAL)
    left, stays = ask(engine, 1, tokens=20), ask(engine, 2)
    waiter = asyncio.ensure_future(engine.answer(left))
    await passes(left, 2)
    waiter.cancel()
    assert reason(await left)["type"] == "abort"
    assert reason(await stays)["type"] == "length"


async def test_a_stream_that_is_closed_aborts_its_request(make_engine: Make) -> None:
    engine = make_engine(latency=VIRTUAL)
    flight = ask(engine, tokens=20)
    stream = engine.steps(flight)
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    assert len((await flight).generation.output_ids) < 20


# Pause


@pytest.mark.parametrize("mode", ["abort", "retract", "in_place"])
async def test_new_requests_wait_outside_of_every_pause_and_run_in_order_after_it(
    make_engine: Make, mode: PauseMode
) -> None:
    engine = make_engine(latency=VIRTUAL)
    await engine.scheduler.pause(mode)
    flights = [ask(engine, n) for n in (1, 2)]
    await asyncio.sleep(0)
    engine.scheduler.abort()
    assert [flight.phase for flight in flights] == ["held", "held"]
    engine.scheduler.resume()
    for flight in flights:
        assert reason(await flight)["type"] == "length"
    assert [g.id for g in engine.generations] == [flight.id for flight in flights]


async def test_a_pause_by_abort_returns_when_the_last_request_was_answered(make_engine: Make) -> None:
    engine = make_engine(latency=VIRTUAL, max_running_requests=1)
    running, waiting = ask(engine, 1, tokens=20), ask(engine, 2)
    await passes(running, 2)
    await engine.scheduler.pause("abort")
    assert running.done
    assert waiting.done
    assert reason(await running)["message"] == "Aborted"
    assert reason(await waiting)["message"] == "Abort in waiting queue"


async def test_in_place_stands_still_and_goes_on_where_it_was(make_engine: Make) -> None:
    engine = make_engine(latency=VIRTUAL)
    alone = await ask(make_engine(latency=VIRTUAL))
    flight = ask(engine)
    await passes(flight, 2)
    await engine.scheduler.pause("in_place")
    for _ in range(20):
        await asyncio.sleep(0)
    assert (flight.steps, flight.phase) == (2, "running")
    engine.scheduler.resume()
    answered = await flight
    assert answered.generation == alone.generation
    assert answered.timing.finished == alone.timing.finished


async def test_retract_prefills_prompt_and_sampled_ids_again_and_says_the_same(make_engine: Make) -> None:
    latency = {**VIRTUAL, "request": 0, "prefill_token": 0.001, "decode_step": 0.01}
    engine = make_engine(latency=latency)
    flight = ask(engine, 1, 2, 3, 4, tokens=6)
    await passes(flight, 3)
    await engine.scheduler.pause("retract")
    assert flight.phase == "waiting"
    engine.scheduler.resume()
    answered = await flight
    assert answered.generation.retractions == 1
    assert answered.generation.output_ids == (await ask(make_engine(), 1, 2, 3, 4, tokens=6)).generation.output_ids
    assert answered.timing.finished == 4_000 + 2 * PASS + (4 + 3) * 1_000 + 2 * PASS


async def test_retracted_requests_go_on_in_order_behind_those_that_waited(make_engine: Make) -> None:
    engine = make_engine(latency=VIRTUAL, max_running_requests=2)
    flights = [ask(engine, n) for n in (1, 2, 3)]
    await passes(flights[1], 2)
    await engine.scheduler.pause("retract")
    assert list(engine.scheduler.waiting) == [flights[2], *flights[:2]]
    engine.scheduler.resume()
    assert [flight.phase for flight in flights] == ["running", "waiting", "running"]
    assert [reason(await flight)["type"] for flight in flights] == ["length"] * 3


@pytest.mark.parametrize(("streamed", "passed", "told"), [(True, 3, 3), (False, 3, 0), (False, 60, 50)])
async def test_a_retracted_request_that_is_aborted_gives_what_was_sent_and_leaves_its_prompt_cached(
    make_engine: Make, streamed: bool, passed: int, told: int
) -> None:
    engine = make_engine(latency=VIRTUAL, default_reply={"tokens": 200})
    flight = ask(engine, tokens=1_000, streamed=streamed)
    steps = await passes(flight, passed)
    await engine.scheduler.pause("retract")
    engine.scheduler.abort(flight.id)
    answered = await flight
    assert (answered.from_queue, answered.generation.output_ids) == (True, steps[-1].ids[:told])
    engine.scheduler.resume()
    went_on = ask(engine, *flight.asked.prompt_ids, *steps[-1].ids, 1)
    assert (await went_on).cached_tokens == flight.asked.prompt.size


@pytest.mark.parametrize(("profile", "version"), [("sglang-0.5.16", "2"), ("sglang-0.5.23", "1")])
async def test_an_answer_without_spans_tells_the_version_of_the_time_when_it_is_given(
    make_engine: Make, profile: str, version: str
) -> None:
    engine = make_engine(profile=profile, latency=VIRTUAL, weight_version="1")
    flight = ask(engine, tokens=70, streamed=True)
    await passes(flight, 3)
    await engine.scheduler.pause("retract")
    await engine.scheduler.change_weights("2", flush=None)
    engine.scheduler.abort(flight.id)
    assert (await flight).weight_version == version


async def test_aborting_what_stands_still_ends_it_with_what_it_has(make_engine: Make) -> None:
    engine = make_engine(latency=VIRTUAL)
    flight = ask(engine)
    await passes(flight, 3)
    await engine.scheduler.pause("in_place")
    await engine.scheduler.pause("abort")
    assert len((await flight).generation.output_ids) == 3


# Weights


async def test_a_change_of_weights_waits_for_what_is_under_way_and_keeps_new_requests_outside(
    make_engine: Make,
) -> None:
    engine = make_engine(latency=VIRTUAL)
    before = ask(engine, 1)
    change = asyncio.ensure_future(engine.scheduler.change_weights("2", flush="idle"))
    await passes(before, 1)
    after = ask(engine, 2)
    assert after.phase == "held"
    assert await change
    assert ((await before).generation.weight_version, (await after).generation.weight_version) == ("default", "2")


@pytest.mark.parametrize("mode", ["retract", "in_place"])
async def test_under_a_pause_weights_change_between_two_ids(make_engine: Make, mode: PauseMode) -> None:
    engine = make_engine(latency=VIRTUAL, weight_version="1")
    flight = ask(engine, tokens=6)
    await passes(flight, 2)
    await engine.scheduler.pause(mode)
    assert await engine.scheduler.change_weights("2", flush=None)
    engine.scheduler.resume()
    generation = (await flight).generation
    assert [(s.version, s.start, s.end) for s in generation.weight_versions] == [("1", 0, 2), ("2", 2, 6)]
    assert generation.weight_version == "2"


async def test_versions_that_no_id_was_sampled_by_leave_no_span(make_engine: Make) -> None:
    engine = make_engine(latency=VIRTUAL, weight_version="1")
    flight = ask(engine)
    for version in ("2", "3"):
        engine.scheduler.set_version(version)
    await passes(flight, 2)
    for version in ("4", "3"):
        engine.scheduler.set_version(version)
    generation = (await flight).generation
    assert (generation.weight_version, generation.weight_versions) == ("3", ())


@pytest.mark.parametrize(
    ("needs", "mode", "flushed"),
    [
        ("idle", "retract", False),
        ("nothing_running", "retract", True),
        ("idle_or_paused", "retract", True),
        ("idle_or_paused", "in_place", False),
    ],
)
async def test_a_flush_needs_the_state_that_the_release_needs(
    make_engine: Make, needs: Any, mode: PauseMode, flushed: bool
) -> None:
    engine = make_engine(latency=VIRTUAL)
    await ask(engine, 1, 2, 3)
    flight = ask(engine, 9)
    await passes(flight, 1)
    await engine.scheduler.pause(mode)
    assert engine.scheduler.flush(needs) is flushed
    assert (engine.prefix_cache.size == 0) is flushed
    engine.scheduler.resume()
    await flight


async def test_what_was_asked_before_a_flush_is_not_cached_after_it(make_engine: Make) -> None:
    engine = make_engine()
    cached = [ask(engine, 1, 2, 3).cached_tokens for _ in range(2)]
    engine.scheduler.flush("idle")
    cached += [ask(engine, 1, 2, 3).cached_tokens for _ in range(2)]
    assert cached == [0, 2, 0, 2]


def test_adapters_and_extra_keys_share_no_prefix_and_adapters_no_reply(make_engine: Make) -> None:
    engine = make_engine()
    base = ask(engine, 1, 2, 3)
    others = [ask(engine, 1, 2, 3, lora="a"), ask(engine, 1, 2, 3, extra_key="k"), ask(engine, 1, 2, 3, lora="a")]
    assert [flight.cached_tokens for flight in (base, *others)] == [0, 0, 0, 2]
    assert others[0].drawn.output_ids != base.drawn.output_ids
    assert engine.generations[1].lora == "a"


# All together


DEEDS = st.lists(
    st.sampled_from(["ask", "abort", "abort all", "in_place", "retract", "abort mode", "resume", "version", "turn"]),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(deeds=DEEDS, limit=st.sampled_from([None, 1, 2]))
async def test_whatever_is_done_to_them_all_finish_and_none_says_a_word_it_would_not_have_said(
    deeds: list[str], limit: int | None
) -> None:
    engine = Engine(EngineSettings.model_validate({"latency": VIRTUAL, "max_running_requests": limit}), seed=1)
    flights: list[Flight] = []
    pausing: list[asyncio.Task[None]] = []
    for n, deed in enumerate(deeds):
        if deed == "ask":
            flights.append(ask(engine, n + 1, tokens=1 + n % 5))
        elif deed == "abort":
            engine.scheduler.abort(flights[n % len(flights)].id if flights else None)
        elif deed == "abort all":
            engine.scheduler.abort()
        elif deed in ("in_place", "retract"):
            await engine.scheduler.pause(deed)  # type: ignore[arg-type]
        elif deed == "abort mode":
            pausing.append(asyncio.ensure_future(engine.scheduler.pause("abort")))
        elif deed == "version":
            engine.scheduler.set_version(str(n))
        elif deed == "resume":
            engine.scheduler.resume()
        await asyncio.sleep(0)
    engine.scheduler.resume()
    for flight in flights:
        generation = (await flight).generation
        assert generation.output_ids == flight.drawn.output_ids[: len(generation.output_ids)]
        spans = generation.weight_versions
        if spans:
            assert [s.start for s in spans] == [0, *(s.end for s in spans[:-1])]
            assert spans[-1].end == len(generation.output_ids)
    await asyncio.gather(*pausing)
    assert engine.scheduler.idle
    assert not engine.scheduler.flights
    assert sorted(g.id for g in engine.generations) == sorted(flight.id for flight in flights)


# What a reply says befalls its request


@pytest.mark.parametrize("latency", [{}, VIRTUAL])
async def test_a_reply_may_have_its_request_retracted_and_says_the_same(
    make_engine: Make, latency: dict[str, str]
) -> None:
    plain = (await ask(make_engine(latency=latency), tokens=12)).generation
    answered = await ask(make_engine(latency=latency, default_reply={"retract_after": 4}), tokens=12)
    told = answered.generation
    assert (told.retractions, told.output_ids, told.logprobs) == (1, plain.output_ids, plain.logprobs)
    assert told.cached_tokens == plain.cached_tokens


@pytest.mark.parametrize("latency", [{}, VIRTUAL])
@pytest.mark.parametrize(("speculative", "end"), [(None, 4), ({"acceptance": [1.0], "draft_tokens": 4}, 5)])
async def test_a_reply_may_have_the_weights_updated_while_it_is_sampled(
    make_engine: Make, latency: dict[str, str], speculative: Any, end: int
) -> None:
    update = {"after": 4, "version": "8"}
    engine = make_engine(latency=latency, speculative=speculative, weight_version="7", default_reply={"update": update})
    told = (await ask(engine, tokens=12)).generation
    spans = [(span.version, span.start, span.end) for span in told.weight_versions]
    assert spans == [("7", 0, end), ("8", end, 12)]
    assert told.weight_version == engine.scheduler.weight_version == "8"


@pytest.mark.parametrize("befalls", [{"retract_after": 12}, {"update": {"after": 12}}])
async def test_what_would_befall_a_request_after_its_last_id_does_not(
    make_engine: Make, befalls: dict[str, Any]
) -> None:
    engine = make_engine(default_reply=befalls)
    told = (await ask(engine, tokens=12)).generation
    assert (told.retractions, told.weight_versions, engine.scheduler.weight_version) == (0, (), "default")


async def test_an_update_of_one_reply_changes_the_weights_of_all_in_flight(make_engine: Make) -> None:
    rules = [{"contains": "go", "reply": {"update": {"after": 2, "version": "8"}}}]
    engine = make_engine(latency=VIRTUAL, rules=rules)
    other = ask(engine, 1, 2, tokens=9)
    prompt = Prompt((5, 6, 7), "go")
    await engine.submit(prompt, Sampling(max_new_tokens=9), endpoint="generate")
    told = (await other).generation
    assert [(span.version, span.end) for span in told.weight_versions] == [("default", 2), ("8", 9)]


async def test_an_abort_takes_all_whose_ids_begin_with_a_known_one(make_engine: Make) -> None:
    engine = make_engine(latency={**VIRTUAL, "decode_step": 0.01})
    flights = {rid: ask(engine, n, rid=rid) for n, rid in enumerate(("a-1", "a-10", "a-2"), start=1)}
    engine.scheduler.abort("a-")
    engine.scheduler.abort("a-1")
    answers = {rid: reason(await flight)["type"] for rid, flight in flights.items()}
    assert answers == {"a-1": "abort", "a-10": "abort", "a-2": "length"}
