"""Messages whose body is there: httpx's own, with less made for them."""

from typing import Any

import httpx
import pytest

from miles_sim import messages
from miles_sim.messages import WholeRequest, WholeResponse, goal_at, goal_of, header_items, raw_headers

URLS = [
    "http://engine/v1/chat/completions",
    "http://sessions/sessions/0a1b/samples",
    "http://ENGINE/a",
    "http://engine:81/a",
    "http://engine:80/a",
    "http://engine",
    "http://engine/a/../b",
    "http://engine/a%20b?c=%20d",
    "http://127.0.0.1:8000/größe",
    "http://[::1]/a",
    "https://engine/a",
    "http://xn--fiqs8s/a",
]


@pytest.mark.parametrize("url", URLS)
def test_a_goal_is_what_httpx_reads_in_a_url(url: str) -> None:
    parsed = httpx.URL(url)
    own = goal_at(url)
    assert own == goal_at(parsed) == goal_of(httpx.Request("GET", url))
    assert (own.host, own.port, own.path, own.raw_path) == (parsed.host, parsed.port, parsed.path, parsed.raw_path)
    assert goal_at(WholeRequest("GET", own, (), b"").url) == own


def test_a_request_shows_what_httpx_shows_of_it() -> None:
    pairs = [(b"Host", b"engine"), (b"X-Own", b"1")]
    ours = messages.request("post", goal_at("http://engine/a"), pairs, b"abc")
    theirs = httpx.Request("post", "http://engine/a", headers=[("X-Own", "1")], content=b"abc")
    assert (ours.method, ours.url, ours.content, ours.read()) == (theirs.method, theirs.url, b"abc", b"abc")
    assert ours.headers["x-own"] == "1"
    assert b"".join(ours.stream) == b"abc"  # type: ignore[arg-type]  # a byte stream is both


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_the_length_of_a_body_is_told(method: str) -> None:
    request = messages.request(method, goal_at("http://engine/a"), [], b"" if method == "GET" else b"abc")
    assert raw_headers(request) == ([] if method == "GET" else [(b"Content-Length", b"3")])


def test_headers_that_were_changed_are_those_that_are_read() -> None:
    response = WholeResponse(200, [(b"X-Own", "größe".encode())], b"")
    assert header_items(response) == [("x-own", "größe".encode().decode("latin-1"))]
    assert messages.encoded(header_items(response)) == [(b"x-own", "größe".encode())]
    response.headers["x-own"] = "2"
    assert header_items(response) == [("x-own", "2")]


async def test_a_response_lets_go_of_what_a_client_put_around_it() -> None:
    closed: list[str] = []

    class Around(httpx.AsyncByteStream):
        async def aclose(self) -> None:
            closed.append("once")

    response = WholeResponse(200, (), b"abc")
    response.stream = Around()
    assert [await response.aread(), await response.aread(), response.is_closed] == [b"abc", b"abc", True]
    assert closed == ["once"]


@pytest.mark.parametrize("message", [WholeResponse(200, (), b""), WholeRequest("GET", goal_at("http://e/"), (), b"")])
def test_what_a_message_has_not_is_an_error_by_name(message: Any) -> None:
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        message.colour  # noqa: B018 - looking is the point
