"""The client of plays: what httpx would send, and what it would give."""

import gzip
from typing import Any

import httpx
import pytest

from miles_sim import messages
from miles_sim.plain_http import PlainClient


class Way(httpx.AsyncBaseTransport):
    """Keeps what it is asked, and answers the same each time."""

    def __init__(self, *, headers: Any = (), body: bytes = b"", status: int = 200) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.answer = (status, headers, body)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        headers = sorted((name.lower(), value) for name, value in request.headers.raw)
        self.asked.append((request.method, str(request.url), headers, body, request.extensions["timeout"]))
        return messages.response(*self.answer)


ASKED: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "http://engine/a?b=c", {"content": b"{}", "headers": {"content-type": "application/json"}}),
    ("POST", "http://engine:81/a", {"json": {"größe": [1, None, 0.5]}}),
    ("POST", "http://engine/a", {"json": {}, "headers": {"content-type": "text/plain"}}),
    ("POST", "http://engine/a", {"json": {}, "timeout": 3.0}),
    ("POST", "http://engine/a", {}),
    ("DELETE", "http://engine/a/b", {"timeout": None}),
    ("GET", "http://engine/a", {"params": {"b": "c"}, "headers": {"accept": "text/plain"}}),
    ("GET", "http://engine/a", {"headers": [("x", "1"), ("x", "2")], "cookies": {"a": "b"}}),
    ("PUT", "http://engine/a", {"content": "größe"}),
    ("POST", "http://engine/a", {"data": {"a": "b"}}),
]


@pytest.mark.parametrize(("method", "url", "options"), ASKED)
@pytest.mark.filterwarnings("ignore:Setting per-request cookies:DeprecationWarning")
async def test_a_request_is_what_httpx_makes_of_it(method: str, url: str, options: dict[str, Any]) -> None:
    way = Way()
    await PlainClient(way, timeout=7.0).request(method, url, **options)
    async with httpx.AsyncClient(transport=way, timeout=7.0) as client:
        await client.request(method, url, **options)
    ours, theirs = way.asked
    assert ours == theirs


async def test_a_number_that_json_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        await PlainClient(Way()).post("http://engine/", json={"a": float("nan")})


async def test_a_response_is_read_and_knows_its_request() -> None:
    response = await PlainClient(Way(headers=[(b"content-type", b"application/json")], body=b'{"a":1}')).get(
        "http://e/"
    )
    assert (response.content, response.text, response.json()) == (b'{"a":1}', '{"a":1}', {"a": 1})
    assert (response.is_success, response.is_closed, str(response.request.url)) == (True, True, "http://e/")


async def test_a_whole_response_serves_a_client_of_httpx_read_and_streamed() -> None:
    way = Way(body=b"abc")
    async with httpx.AsyncClient(transport=way) as client:
        response = await client.get("http://e/")
        assert (response.content, response.text) == (b"abc", "abc")
        assert response.elapsed.total_seconds() >= 0
        async with client.stream("GET", "http://e/") as streamed:
            assert [part async for part in streamed.aiter_bytes()] == [b"abc"]


async def test_an_encoded_body_is_decoded() -> None:
    way = Way(headers=[(b"Content-Encoding", b"gzip")], body=gzip.compress(b"abc"))
    assert (await PlainClient(way).get("http://e/")).content == b"abc"


async def test_a_body_that_only_says_that_it_is_encoded_is_an_error() -> None:
    way = Way(headers=[(b"content-encoding", b"gzip")], body=b"abc")
    with pytest.raises(httpx.DecodingError):
        await PlainClient(way).get("http://e/")


async def test_cookies_and_redirects_are_left_alone() -> None:
    way = Way(status=307, headers=[(b"location", b"http://elsewhere/"), (b"set-cookie", b"a=b")])
    client = PlainClient(way)
    for _ in range(2):
        assert (await client.get("http://e/")).status_code == 307
    assert len(way.asked) == 2
    assert way.asked[0] == way.asked[1]


async def test_what_is_asked_beyond_that_httpx_does() -> None:
    way = Way(status=307, headers=[(b"location", b"/b")])
    with pytest.raises(httpx.TooManyRedirects):
        await PlainClient(way).get("http://e/", follow_redirects=True)
    assert [url for _, url, *_ in way.asked][:2] == ["http://e/", "http://e/b"]
