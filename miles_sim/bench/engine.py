"""Requests per second of the engine over a socket, beside a server that does not think and beside miles' mock."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import IO, Any

import orjson

from miles_sim.bench import mock
from miles_sim.bench.host import OUTPUT_TOKENS
from miles_sim.bench.load import BenchError, Load, fire, once, prepared
from miles_sim.tokenizer import ByteTokenizer

PROMPT_TOKENS = 1_000
PROMPTS = 64
"""Different prompts, sent round and round: from the second round on the prefix cache knows them."""
SAMPLES = 8
"""Of each prompt, one after another, as a trainer asks for a group (miles' `--n-samples-per-prompt`)."""
ROUNDS = 64
"""Slices of the time, by turns for each server: short, so that a busy moment of the machine is busy for all."""


@dataclass(frozen=True)
class EngineBench:
    """Answers a second; None where it was not measured."""

    rps: float
    floor_rps: float
    ratio_floor: float
    """The engine's share of what the unthinking server gives."""
    mock_rps: float | None = None
    ratio_mock: float | None = None

    def document(self) -> dict[str, Any]:
        return asdict(self)


def requests(samples: int = SAMPLES) -> list[bytes]:
    """Chat requests as a session server of miles sends them: messages, and the ids they render to; each prompt
    `samples` times in a row."""
    tokenizer = ByteTokenizer("chatml")
    random = Random(0)
    asked = [prepared("/v1/chat/completions", orjson.dumps(_body(tokenizer, random))) for _ in range(PROMPTS)]
    return [request for request in asked for _ in range(samples)]


def _body(tokenizer: ByteTokenizer, random: Random) -> dict[str, Any]:
    frame = len(tokenizer.render([{"role": "user", "content": ""}]))
    letters = [chr(random.randrange(ord("a"), ord("z") + 1)) for _ in range(PROMPT_TOKENS - frame)]
    text = "".join(letter if place % 2 else "-" for place, letter in enumerate(letters))
    messages = [{"role": "user", "content": text}]
    ids = tokenizer.render(messages)
    if len(ids) != PROMPT_TOKENS:
        raise BenchError(f"prompt: {len(ids)} ids, {PROMPT_TOKENS} are due")
    return {
        "model": "sim",
        "messages": messages,
        "input_ids": ids,
        "max_tokens": OUTPUT_TOKENS,
        "logprobs": True,
        "return_meta_info": True,
    }


def measure(
    *,
    seconds: float,
    connections: int,
    miles_python: str | None,
    checkout: str | None = None,
    samples: int = SAMPLES,
) -> EngineBench:
    """All servers in one run, by turns; `seconds` for each. The load comes from this process, each server is another.
    `samples`: see `requests`.

    `BenchError` where a server does not start or answers anything but 200.
    """
    asked = requests(samples)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        here = [sys.executable, "-m", "miles_sim.bench.host"]
        engine = stack.enter_context(_process([*here, "engine"]))
        answer = asyncio.run(once(engine, asked[0]))
        urls = [engine, stack.enter_context(_process([*here, "bytes", _written(folder / "answer", answer)]))]
        if miles_python is not None:
            urls.append(stack.enter_context(_process(_mock(miles_python, folder, answer, checkout))))
        loads = asyncio.run(_by_turns(urls, asked, connections=connections, seconds=seconds))
    return _figures([load.rps for load in loads])


def _written(file: Path, content: bytes) -> str:
    file.write_bytes(content)
    return str(file)


def _mock(python: str, folder: Path, answer: bytes, checkout: str | None) -> list[str]:
    ByteTokenizer("chatml").save(folder / "tokenizer")
    text = orjson.loads(answer)["choices"][0]["message"]["content"]
    reply = _written(folder / "reply", text.encode())
    command = [python, str(Path(mock.__file__)), str(folder / "tokenizer"), reply]
    return [*command, checkout] if checkout else command


async def _by_turns(urls: Sequence[str], asked: Sequence[bytes], *, connections: int, seconds: float) -> list[Load]:
    for url in urls:
        await fire(url, asked, connections=connections, seconds=min(0.5, seconds / ROUNDS))
    loads = [Load(0, 0.0) for _ in urls]
    for _ in range(ROUNDS):
        for place, url in enumerate(urls):
            loads[place] += await fire(url, asked, connections=connections, seconds=seconds / ROUNDS)
    return loads


def _figures(rps: list[float]) -> EngineBench:
    engine, floor, *mocks = rps
    base = (round(engine, 1), round(floor, 1), round(engine / floor, 3))
    return EngineBench(*base, *((round(mocks[0], 1), round(engine / mocks[0], 1)) if mocks else ()))


@contextmanager
def _process(command: Sequence[str]) -> Iterator[str]:
    """A server in a process of its own; gives its URL, and ends it by closing its input.

    What it logs goes to a file: a pipe that nobody reads fills, and who writes to it then stands still.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        except OSError as error:
            raise BenchError(f"{command[0]}: cannot be run: {error}") from error
        with process:
            try:
                yield _url(process, command, log)
            finally:
                if process.stdin is not None:
                    process.stdin.close()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()


def _url(process: "subprocess.Popen[str]", command: Sequence[str], log: IO[str]) -> str:
    line = process.stdout.readline() if process.stdout else ""
    if line.startswith("ready "):
        return line.split()[1]
    process.kill()
    process.wait()
    log.seek(0)
    raise BenchError(f"{' '.join(command)}: does not start:\n{log.read()[-2_000:]}")
