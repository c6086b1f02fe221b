"""What crosses to miles' driver is seen, and broken where the job says so."""

import asyncio
import types

import pytest

from miles_sim.targets import miles_wire
from miles_sim.targets.miles_functions import Rollouts
from miles_sim.targets.miles_wire import PATIENCE, tapped


@pytest.fixture
def driver():
    async def collect(url, body, timeout):
        return b"%d payload of some length" % body

    return types.SimpleNamespace(post_bytes_no_retry=collect)


async def test_each_rollouts_payload_is_told_and_handed_on(driver):
    rollouts = Rollouts()

    async def one(number):
        rollouts.enter(number)
        return await driver.post_bytes_no_retry("http://s", number, timeout=1)

    with tapped(driver, rollouts, None) as payloads:
        got = await asyncio.gather(one(0), one(1))
    assert payloads == {0: b"0 payload of some length", 1: b"1 payload of some length"} == dict(enumerate(got))


async def test_a_broken_payload_is_told_as_it_was(driver):
    rollouts = Rollouts()
    rollouts.enter(0)
    with tapped(driver, rollouts, "cut") as payloads:
        got = await driver.post_bytes_no_retry("http://s", 0, timeout=1)
    assert payloads == {0: b"0 payload of some length"}
    assert payloads[0].startswith(got)
    assert len(got) < len(payloads[0])


async def test_the_driver_is_as_before_afterwards(driver):
    before = driver.post_bytes_no_retry
    with tapped(driver, Rollouts(), None):
        assert driver.post_bytes_no_retry is not before
    assert driver.post_bytes_no_retry is before


def test_a_driver_that_is_sent_no_bytes_is_left_alone():
    with tapped(None, Rollouts(), None) as payloads:
        assert payloads == {}


@pytest.mark.parametrize("limit", [{"_SESSION_REQUEST_TIMEOUT": 120}, {}])
def test_a_driver_waits_seconds_where_it_waits_minutes(monkeypatch, limit):
    driver = types.SimpleNamespace(**limit)
    monkeypatch.setattr(miles_wire.importlib, "import_module", lambda name: driver)
    with miles_wire.impatient():
        assert vars(driver) == dict.fromkeys(limit, PATIENCE)
    assert vars(driver) == limit
