"""One run of the whole library on the reference target serves all tests of this folder."""

import asyncio
import os

import pytest

from miles_sim.scenarios import library
from miles_sim.targets.reference import ReferenceTarget
from miles_sim.transport import LocalNetwork
from miles_sim.verify.pack import load_pack
from miles_sim.verify.run import Run, select_cases, verify


def pytest_configure(config: pytest.Config) -> None:
    """Snapshots are updated by a person who reads them: never in CI, never by several processes at once."""
    if not config.getoption("update_snapshots", default=False):
        return
    if os.environ.get("CI") or config.getoption("numprocesses", default=None):
        raise pytest.UsageError("--snapshot-update is refused in CI and under xdist: the changes would go unread")


async def _run() -> Run:
    network = LocalNetwork()
    target = ReferenceTarget(network)
    try:
        cases = select_cases([library.load(name) for name in library.names()], [])
        return await verify(cases, target, load_pack(), network=network)
    finally:
        await target.close()
        await network.aclose()


@pytest.fixture(scope="session")
def run() -> Run:
    """Every scenario played on the reference target and judged by the built-in pack."""
    return asyncio.run(_run())
