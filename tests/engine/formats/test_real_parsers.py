"""Ours beside the parsers of the SGLang that the fork in miles-rl bundles: the same cases, whole and broken ones."""

import json
import os
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from miles_sim.engine import reasoning
from miles_sim.engine.formats import FORMATS, UnreadableCall, dialect
from miles_sim.reply import ToolCall

PYTHON = os.environ.get("MILES_SIM_MILES_PYTHON")
pytestmark = [pytest.mark.miles, pytest.mark.skipif(not PYTHON, reason="MILES_SIM_MILES_PYTHON names no interpreter")]
RELEASE = dialect("0.5.10")
TOOLS: list[dict[str, Any]] = [
    {
        "function": {
            "name": "run",
            "parameters": {"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}},
        }
    },
    {"function": {"name": "read", "parameters": None}},
]
VALUES = ("x", "北京", 'a"b', "", "12", "a<b", 3, -1.5, True, None, [1, 2], {"k": "v"}, {})
TAGS = ("<think>", "</think>", "<tool_call>", "<|tool_calls_section_begin|>", "hm", " ", "\n", "<")
CASES = 60


def chunks(random: Random, text: str) -> list[str]:
    found, at, most = [], 0, random.choice((1, 8, 40))
    while at < len(text):
        size = random.randint(1, most)
        found.append(text[at : at + size])
        at += size
    return found or [""]


def damaged(random: Random, text: str) -> str:
    at = random.randrange(len(text))
    kind = random.randrange(5)
    if kind == 0:
        return text[:at]
    if kind == 1:
        return text[:at] + random.choice('x{}"<') + text[at:]
    return text[:at] + text[at + random.randint(1, 12) :] if kind == 2 else text


def tool_cases(parser: str) -> list[dict[str, Any]]:
    random = Random(parser)
    cases = []
    for _ in range(CASES):
        calls = [
            ToolCall(
                name=random.choice(("run", "read", "nope")),
                arguments={random.choice("anz"): random.choice(VALUES) for _ in range(random.randint(0, 3))},
            )
            for _ in range(random.randint(1, 3))
        ]
        text = FORMATS[parser].spell(calls, after_text=True, calls_before=random.choice((0, 2)))
        cases.append({"parser": parser, "tools": TOOLS, "chunks": chunks(random, damaged(random, f"Well.{text}"))})
    return cases


def thought_cases(parser: str) -> list[dict[str, Any]]:
    random = Random(parser)
    texts = ["".join(random.choices(TAGS, k=random.randint(0, 9))) for _ in range(CASES)]
    return [{"parser": parser, "forced": random.random() < 0.5, "chunks": chunks(random, text)} for text in texts]


def real(cases: list[dict[str, Any]]) -> Any:
    script = Path(__file__).with_name("real_parsers.py")
    done = subprocess.run(
        [str(PYTHON), str(script)], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def ours_of_tools(case: dict[str, Any]) -> Any:
    format, text = FORMATS[case["parser"]], "".join(case["chunks"])
    whole: Any = None
    if format.marker in text:
        try:
            found = format.parse(text, TOOLS, RELEASE)
            whole = [found.text, [[c.tool, c.name, c.arguments] for c in found.calls]]
        except UnreadableCall:
            whole = "error"
    stream = format.stream(TOOLS, RELEASE)
    steps = [stream.push(chunk) for chunk in case["chunks"]]
    return [whole, [[s.text, [[c.index, c.name, c.arguments] for c in s.calls]] for s in steps]]


def ours_of_thoughts(case: dict[str, Any]) -> Any:
    options: dict[str, object] = {} if case["forced"] else {"enable_thinking": False, "thinking": False}
    whole = reasoning.parse("".join(case["chunks"]), case["parser"], RELEASE, options)
    stream = reasoning.ReasoningStream(case["parser"], RELEASE, options)
    steps = [stream.push(chunk) for chunk in case["chunks"]]
    return [[whole.reasoning, whole.text], [[s.reasoning, s.text] for s in steps]]


def test_every_call_is_read_as_sglang_reads_it() -> None:
    cases = [
        case for parser in ("qwen25", "deepseekv3", "deepseekv31", "glm45", "kimi_k2") for case in tool_cases(parser)
    ]
    for case, expected in zip(cases, real(cases), strict=True):
        assert ours_of_tools(case) == expected, case


def test_every_array_of_calls_is_streamed_as_sglang_streams_it() -> None:
    """Whole ones are read by the server itself, not by the parser."""
    cases = tool_cases("json_array")
    for case in cases:
        case["chunks"][0] = case["chunks"][0].removeprefix("Well.")
    for case, (_, expected) in zip(cases, real(cases), strict=True):
        assert ours_of_tools(case)[1] == expected, case


def test_every_thought_is_read_as_sglang_reads_it() -> None:
    cases = [case for parser in ("qwen3", "deepseek-r1", "glm45", "kimi_k2") for case in thought_cases(parser)]
    for case, expected in zip(cases, real(cases), strict=True):
        assert ours_of_thoughts(case) == expected, case
