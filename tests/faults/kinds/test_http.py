"""HTTP kinds: statuses in the words of each route, and bodies that are no reply."""

import gzip
import json
from random import Random
from typing import Any

import pytest

from miles_sim.faults.catalogue import kind_named, kinds
from miles_sim.faults.strike import Answer, Asked, CannotStrike, Strike

STATUSES = ("400-context", "401", "404", "408", "413", "422", "429", "500", "502", "503", "504")
BODIES = [name for name, kind in kinds().items() if kind.layer == "http" and kind.scenario == "fault-http-body"]
TRUE = Answer(200, b'{"id": "a"}')


def struck(name: str, **params: Any) -> Strike:
    kind = kind_named(name)
    strike: Strike = kind.effect(kind.params.model_validate(params), Random(0))
    return strike


def asked(path: str = "/v1/chat/completions") -> Asked:
    return Asked("POST", path, (), b"{}")


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/generate?x=1", "/v1/completions"])
def test_a_status_is_answered_without_the_engine_or_in_its_place(status: str, path: str) -> None:
    code = int(status[:3])
    undelivered = struck(f"http-{status}", **({} if code == 400 else {"delivered": False}))
    answer = undelivered.stand_in(asked(path))
    assert undelivered.deliveries == 0
    assert answer is not None
    assert answer.status == code
    if code != 400:
        delivered = struck(f"http-{status}", delivered=True)
        assert (delivered.deliveries, delivered.instead) == (1, None)
        assert delivered.ask(asked(path)) == asked(path)
        assert delivered.altered(TRUE, None) == answer


def test_a_gateway_that_gives_up_has_the_engine_at_work() -> None:
    assert (struck("http-504").deliveries, struck("http-500").deliveries, struck("http-503").deliveries) == (1, 1, 0)


def test_errors_are_spelled_as_the_release_spells_them() -> None:
    full = struck("http-503").stand_in(asked())
    assert full is not None
    assert json.loads(full.body) == {
        "object": "error",
        "message": "The request queue is full.",
        "type": "503",
        "param": None,
        "code": 503,
    }
    crashed = struck("http-500", delivered=False)
    chat, generate = crashed.stand_in(asked()), crashed.stand_in(asked("/generate"))
    assert chat is not None
    assert generate is not None
    assert json.loads(chat.body)["type"] == "InternalServerError"
    assert (generate.body, generate.headers[0][1]) == (b"Internal Server Error", "text/plain; charset=utf-8")


@pytest.mark.parametrize("seconds", [0, 30, None])
def test_too_many_requests_say_when_to_come_again(seconds: int | None) -> None:
    answer = struck("http-429", retry_after=seconds).stand_in(asked())
    assert answer is not None
    assert dict(answer.headers).get("retry-after") == (None if seconds is None else str(seconds))


def test_a_redirect_says_where_to() -> None:
    answer = struck("http-redirect", location="http://other/x").stand_in(asked())
    assert answer is not None
    assert (answer.status, dict(answer.headers)["location"]) == (307, "http://other/x")


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_spoiled_only_where_there_is_a_reply(name: str) -> None:
    found = struck(name).altered(TRUE, None)
    assert found.status == 200
    assert found != TRUE
    with pytest.raises(CannotStrike, match="the engine answered with status 503"):
        struck(name).altered(Answer(503, b""), None)


def test_bodies_are_what_their_kind_says() -> None:
    def body(name: str) -> bytes:
        return struck(f"http-{name}").altered(TRUE, None).body

    assert (body("empty"), body("half"), body("twice")) == (b"", b'{"id"', TRUE.body * 2)
    assert json.loads(body("utf16").decode("utf-16")) == {"id": "a"}
    assert gzip.decompress(body("gzip")) == body("false-gzip") == body("wrong-type") == body("no-type") == TRUE.body
    assert body("stream") == b'data: {"id": "a"}\n\ndata: [DONE]\n\n'
    assert json.loads(body("error-200"))["object"] == "error"
    for name in ("html", "not-json"):
        with pytest.raises(ValueError, match="Expecting"):
            json.loads(body(name))


def test_headers_are_what_their_kind_says() -> None:
    def headers(name: str) -> dict[str, str]:
        return dict(struck(f"http-{name}").altered(TRUE, None).headers)

    assert headers("no-type") == {}
    assert headers("wrong-type") == {"content-type": "text/plain; charset=utf-8"}
    assert headers("stream") == {"content-type": "text/event-stream"}
    assert headers("gzip") == headers("false-gzip") == {"content-type": "application/json", "content-encoding": "gzip"}
