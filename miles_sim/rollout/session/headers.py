"""Which headers pass between client and engine: those about the message, none of those about the connection."""

from collections.abc import Iterable

Headers = list[tuple[str, str]]

ROUTING_KEY = "x-smg-routing-key"
"""Routers send requests with one key to one engine, where the prefix of the session is cached."""

_CONNECTION = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_TO_ENGINE = _CONNECTION | {"content-length", "host", "accept-encoding", "expect", ROUTING_KEY}
# The body is sent decoded, and an own server adds its own `server` and `date`: strict clients refuse to see two.
_TO_CLIENT = _CONNECTION | {"content-length", "content-encoding", "server", "date"}


def to_engine(headers: Iterable[tuple[str, str]], *, routing_key: str) -> Headers:
    """Headers of a request as it is forwarded."""
    return [*_without(headers, _TO_ENGINE), (ROUTING_KEY, routing_key)]


def to_client(headers: Iterable[tuple[str, str]]) -> Headers:
    """Headers of a reply as it is handed on."""
    return _without(headers, _TO_CLIENT)


def _without(headers: Iterable[tuple[str, str]], dropped: frozenset[str]) -> Headers:
    lowered = [(name.lower(), value) for name, value in headers]
    named = {part.strip().lower() for name, value in lowered if name == "connection" for part in value.split(",")}
    return [(name, value) for name, value in lowered if name not in dropped and name not in named]
