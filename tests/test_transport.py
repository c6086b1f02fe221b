"""Serving over sockets: clear refusals, clean ends."""

import asyncio
import gc
import logging
import signal
import socket
import weakref
from typing import Any

import httpx
import pytest

from miles_sim import transport
from miles_sim.transport import ListenError, serve, settle


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


async def test_an_app_is_reachable_at_the_url_that_is_given() -> None:
    async with serve(hello) as url, httpx.AsyncClient(trust_env=False) as client:
        assert url.startswith("http://127.0.0.1:")
        assert (await client.get(url)).text == "hi"


class Wire:
    """A transport that writes down what is sent by each call."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.joined = transport._Joined(self)  # type: ignore[arg-type]

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.sent.append(b"closed")


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


async def test_a_head_and_the_body_that_comes_with_it_are_sent_by_one_call() -> None:
    wire = Wire()
    for data in (HEAD, b"hi", b" there", HEAD, b"again"):
        wire.joined.write(data)
    await asyncio.sleep(0)
    assert wire.sent == [HEAD + b"hi", b" there", HEAD + b"again"]


async def test_a_head_whose_body_is_long_in_coming_is_sent_alone_and_at_once() -> None:
    wire = Wire()
    wire.joined.write(HEAD)
    await asyncio.sleep(0)
    assert wire.sent == [HEAD]
    wire.joined.write(b"hi")
    assert wire.sent == [HEAD, b"hi"]


async def test_a_head_is_sent_before_its_connection_is_closed() -> None:
    wire = Wire()
    wire.joined.write(HEAD)
    wire.joined.close()
    await asyncio.sleep(0)
    assert wire.sent == [HEAD, b"closed"]


async def test_two_apps_get_ports_of_their_own() -> None:
    async with serve(hello) as one, serve(hello) as other:
        assert one != other


async def test_a_port_in_use_is_refused_by_name_before_anything_runs() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        before = asyncio.all_tasks()
        with pytest.raises(ListenError, match=rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use"):
            async with serve(hello, port=port):
                pass
        assert asyncio.all_tasks() == before


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("203.0.113.1", 0)])
async def test_an_address_that_cannot_be_had_is_refused_by_name(host: str, port: int) -> None:
    with pytest.raises(ListenError, match=f"cannot listen on {host}:{port}: "):
        async with serve(hello, host=host, port=port):
            pass


async def test_nothing_is_left_behind(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    tasks, handler = asyncio.all_tasks(), signal.getsignal(signal.SIGINT)
    caplog.set_level(logging.DEBUG, logger="uvicorn")
    async with serve(hello) as url:
        assert signal.getsignal(signal.SIGINT) is handler
        async with httpx.AsyncClient(trust_env=False) as client:
            await client.get(url)
    assert asyncio.all_tasks() == tasks
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]
    assert capfd.readouterr() == ("", "")
    async with httpx.AsyncClient(trust_env=False) as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(url)


async def test_the_port_is_free_again_at_once() -> None:
    async with serve(hello) as url:
        port = int(url.rsplit(":", 1)[1])
    async with serve(hello, port=port) as again:
        assert again == url


async def test_an_error_inside_ends_the_server_too() -> None:
    tasks = asyncio.all_tasks()
    with pytest.raises(RuntimeError, match="mine"):
        async with serve(hello):
            raise RuntimeError("mine")
    assert asyncio.all_tasks() == tasks


async def test_an_answer_does_not_wait_for_a_packet_to_fill() -> None:
    at_once: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        at_once.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listening = transport._listen("127.0.0.1", 0)
    async with await asyncio.start_server(accepted, sock=listening):
        _, writer = await asyncio.open_connection(*listening.getsockname())
        assert await at_once
        writer.close()
        await writer.wait_closed()


def test_what_is_there_when_a_server_settles_is_not_collected_again_and_what_comes_later_is() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.self = self

    thresholds = gc.get_threshold()
    try:
        early = weakref.ref(kept := Cycle())
        settle()
        assert gc.get_freeze_count() > 0
        late = weakref.ref(Cycle())
        del kept
        gc.collect()
        assert early() is not None
        assert late() is None
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        gc.collect()
