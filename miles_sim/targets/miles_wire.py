"""What crosses between miles' session server and its driver. Standard library and miles only."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from .garble import garbled
from .miles_functions import Rollouts
from .miles_serving import replaced

_DRIVER = "miles.rollout.generate_utils.openai_endpoint_utils"
PATIENCE = 15.0
"""Seconds, in place of minutes, that miles waits for an answer: where none comes, a play is to end all the same."""
_PATIENCE = "_SESSION_REQUEST_TIMEOUT"
_COLLECT = "post_bytes_no_retry"
"""The driver's one call that is answered with bytes: the samples of a session."""


def find_wire() -> Any:
    """The driver's module, where samples come to it as bytes; None: it assembles them itself."""
    driver = _driver()
    return driver if hasattr(driver, _COLLECT) else None


@contextmanager
def impatient() -> Iterator[None]:
    """The driver waits `PATIENCE` for a session server, where it has a limit at all."""
    driver = _driver()
    with replaced(driver, _PATIENCE, PATIENCE) if hasattr(driver, _PATIENCE) else nullcontext():
        yield


@contextmanager
def tapped(driver: Any, rollouts: Rollouts, garble: str | None) -> Iterator[dict[int, bytes]]:
    """Rollout to the payload that the session server sent; the driver is given it, or what `garble` makes of it."""
    payloads: dict[int, bytes] = {}
    if driver is None:
        yield payloads
        return
    collect = getattr(driver, _COLLECT)

    async def tap(*arguments: Any, **named: Any) -> Any:
        payload = await collect(*arguments, **named)
        payloads[rollouts.number] = payload
        return payload if garble is None else garbled(garble, payload)

    with replaced(driver, _COLLECT, tap):
        yield payloads


def _driver() -> Any:
    """The driver's module; None in states before it had that name."""
    try:
        return importlib.import_module(_DRIVER)
    except ModuleNotFoundError as error:
        if not _DRIVER.startswith(f"{error.name}."):
            raise
        return None
