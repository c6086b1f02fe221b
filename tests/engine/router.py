"""The real sglang-router from PyPI, as a process before engines that listen on the loopback."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

LAUNCH = """
import json, sys
from sglang_router.launch_router import launch_router
from sglang_router.router_args import RouterArgs
launch_router(RouterArgs(**json.loads(sys.argv[1])))
"""
"""Not its command line: that does not offer `consistent_hashing`, which miles asks for."""


@asynccontextmanager
async def routed(workers: Sequence[str], **arguments: Any) -> AsyncIterator[str]:
    """The router's URL, once it knows all workers. `arguments`: of `RouterArgs`."""
    port, metrics = _free_ports(2)
    settings = {
        "worker_urls": list(workers),
        "host": "127.0.0.1",
        "port": port,
        "prometheus_host": "127.0.0.1",
        "prometheus_port": metrics,
        "policy": "consistent_hashing",
        **arguments,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        LAUNCH,
        json.dumps(settings),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=_lonely(),
    )
    log = asyncio.create_task(_read(process, len(workers)))
    try:
        await log
        log = asyncio.create_task(_drain(process))
        transport = httpx.AsyncHTTPTransport(retries=5)  # it says that it starts to listen just before it does
        async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
            ready = (await client.get(f"http://127.0.0.1:{port}/readiness")).json()
            assert ready == {"status": "ready", "healthy_workers": len(workers), "total_workers": len(workers)}
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()
        log.cancel()


async def _read(process: asyncio.subprocess.Process, workers: int) -> None:
    """Until the log says that it listens and knows its workers."""
    assert process.stdout is not None
    said, listens, known = b"", False, 0
    while not (listens and known == workers):
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        assert line, said.decode()
        said += line
        listens |= b"Starting server on" in line
        known += b"Activated 1 worker" in line


async def _drain(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    while await process.stdout.read(65_536):
        pass


def _lonely() -> dict[str, str]:
    """An environment in which it reaches nothing but the loopback: it would look for a tokenizer on a public hub."""
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    return {**kept, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "1"}


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
