"""Runs in an interpreter that has SGLang: its own parsers over cases from standard input, answers as JSON."""

import json
import logging
import sys
from types import SimpleNamespace
from typing import Any

logging.disable(logging.CRITICAL)

from sglang.srt.function_call.function_call_parser import FunctionCallParser  # noqa: E402
from sglang.srt.function_call.json_array_parser import JsonArrayParser  # noqa: E402
from sglang.srt.parser.reasoning_parser import ReasoningParser  # noqa: E402


def tool_case(case: dict[str, Any]) -> Any:
    tools = [SimpleNamespace(function=SimpleNamespace(**tool["function"])) for tool in case["tools"]]
    text = "".join(case["chunks"])
    known = {**FunctionCallParser.ToolCallParserEnum, "json_array": JsonArrayParser}
    detector = known[case["parser"]]
    whole: Any = None
    if detector().has_tool_call(text):
        try:
            found = detector().detect_and_parse(text, tools)
            whole = [found.normal_text, [[c.tool_index, c.name, c.parameters] for c in found.calls]]
        except Exception:
            whole = "error"
    stream, steps = detector(), []
    for chunk in case["chunks"]:
        step = stream.parse_streaming_increment(chunk, tools)
        steps.append([step.normal_text or "", [[c.tool_index, c.name, c.parameters] for c in step.calls]])
    return [whole, steps]


def thought_case(case: dict[str, Any]) -> Any:
    detector = ReasoningParser.DetectorMap[case["parser"]]
    whole = detector(stream_reasoning=False, force_reasoning=case["forced"]).detect_and_parse("".join(case["chunks"]))
    stream, steps = detector(stream_reasoning=True, force_reasoning=case["forced"]), []
    for chunk in case["chunks"]:
        step = stream.parse_streaming_increment(chunk)
        steps.append([step.reasoning_text, step.normal_text])
    return [[whole.reasoning_text, whole.normal_text], steps]


json.dump([tool_case(case) if "tools" in case else thought_case(case) for case in json.load(sys.stdin)], sys.stdout)
