"""Every route of every release is modelled, refused by name, or as absent as it is there."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from miles_sim.engine import profiles
from miles_sim.engine.engine import Engine
from miles_sim.engine.release import release

from . import routes_table

Make = Callable[..., Engine]
ALL = profiles.names()
FOLDERS = [folder for folder in os.environ.get("MILES_SIM_SGLANG_PATH", "").split(os.pathsep) if folder]


def answers(engine: Engine, requests: list[tuple[str, str]]) -> list[httpx.Response]:
    async def asked() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=engine.app), base_url="http://engine") as client:
            return [await client.request(method, path) for method, path in requests]

    return asyncio.run(asked())


@pytest.mark.parametrize("profile", ALL)
def test_each_route_is_what_the_table_says(make_engine: Make, profile: str) -> None:
    engine = make_engine(profile=profile, metrics=True)
    for path in routes_table.paths():
        concrete = re.sub(r"\{(\w+)(:path)?\}", "x", path)
        methods = engine.release.routes.get(path, ("GET",))
        for answer in answers(engine, [(method, concrete) for method in methods if method != "HEAD"]):
            told = routes_table.status(path, profile)
            if told == routes_table.ABSENT:
                assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"}), path
            elif told == routes_table.REFUSED:
                assert answer.status_code == 501, path
                assert answer.json()["param"] == "path"
                assert repr(path) in answer.json()["message"]
            else:
                assert answer.status_code not in (405, 501), path


def test_the_page_has_the_table() -> None:
    assert routes_table.shown() == routes_table.table(), f"run {sys.executable} {routes_table.__file__}"


@pytest.mark.sglang
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_routes_are_those_of_the_real_release(folder: str) -> None:
    reader = Path(__file__).parent / "readers/routes_reader.py"
    done = subprocess.run([sys.executable, str(reader), folder], capture_output=True, text=True, check=True)
    version, *lines = done.stdout.splitlines()
    profile = next(name for name in ALL if release_of(name) == version)
    found = {path: tuple(methods.split(",")) for path, _, methods in (line.partition(" ") for line in lines)}
    assert found == {path: tuple(sorted(methods)) for path, methods in release(profile).routes.items()}


def release_of(profile: str) -> str:
    return profiles.load(profile).release.removeprefix("sglang ")
