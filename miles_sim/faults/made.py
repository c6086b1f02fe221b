"""Which generation an answer of the engine, or of a session server, holds."""

from collections.abc import Iterable
from functools import lru_cache

import orjson

from miles_sim.faults.strike import Answer


@lru_cache(maxsize=16)  # an answer is looked at several times on its way
def response_id(body: bytes) -> str | None:
    """Id of the generation that an answer holds; None for what holds none."""
    try:
        document = orjson.loads(body)
        name = document["meta_info"]["id"] if "meta_info" in document else document["id"]
    except (ValueError, LookupError, TypeError):
        return None
    return name if isinstance(name, str) else None


def names_of(answers: Iterable[Answer]) -> list[str]:
    """Ids of the generations that the answers hold."""
    return [name for answer in answers if (name := response_id(answer.body)) is not None]
