"""Takes answers through the pydantic models of a real sglang, and steps through its own counter arithmetic.

    PYTHON sglang_reader.py < TASKS > FINDINGS        both JSON

Needs a `sglang` on the path, installed without its dependencies, and `pydantic`, `openai` and, from 0.5.20 on,
`msgspec`. Packages that run GPU code when they are imported are entered without running them.
"""

import __future__

import ast
import importlib
import importlib.metadata
import importlib.util
import json
import sys
import types
from pathlib import Path

MODELS = {
    "chat": "ChatCompletionResponse",
    "chat chunk": "ChatCompletionStreamResponse",
    "completion": "CompletionResponse",
    "completion chunk": "CompletionStreamResponse",
    "models": "ModelList",
    "error": "ErrorResponse",
}
WHOLE = ("chat", "completion", "models")
"""What the release sends is all that its model dumps, in that order; of other kinds it leaves out what is null."""
ACCEPTED = ("spec_accepted_tokens", "spec_accepted_drafts", "spec_num_correct_drafts")
HISTOGRAM = ("spec_acceptance_histogram", "spec_correct_drafts_histogram")
"""What the scheduler has called them."""


def entered():
    """The folder of `sglang`, whose package stands in `sys.modules` without having run; nor has `sglang.utils`, of
    which the models need one function, for requests."""
    spec = importlib.util.find_spec("sglang")
    package = types.ModuleType("sglang")
    package.__path__ = list(spec.submodule_search_locations)
    utils = types.ModuleType("sglang.utils")
    utils.convert_json_schema_to_str = str
    sys.modules.update({"sglang": package, "sglang.utils": utils})
    return Path(package.__path__[0])


def version():
    for name, prefix in (("sglang", "sglang-"), ("miles-rl", "miles-rl-")):
        try:
            return prefix + importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise SystemExit("neither sglang nor miles-rl is installed")


def lost(sent, read, place=""):
    """Where `read` lacks or changes what was sent."""
    if isinstance(sent, dict) and isinstance(read, dict):
        for key, value in sent.items():
            if key not in read:
                yield f"{place}.{key}: not in the model"
            else:
                yield from lost(value, read[key], f"{place}.{key}")
    elif isinstance(sent, list) and isinstance(read, list) and len(sent) == len(read):
        for at, (one, other) in enumerate(zip(sent, read, strict=True)):
            yield from lost(one, other, f"{place}[{at}]")
    elif sent != read or isinstance(sent, bool) is not isinstance(read, bool):
        yield f"{place}: {json.dumps(sent)[:80]} is read as {json.dumps(read)[:80]}"


def findings(protocol, kind, body):
    """What the model of this kind says against the body."""
    try:
        read = getattr(protocol, MODELS[kind]).model_validate_json(json.dumps(body)).model_dump(mode="json")
    except Exception as error:
        return [f"{type(error).__name__}: {error}"[:500]]
    found = list(lost(body, read))
    if kind in WHOLE and not found and json.dumps(read) != json.dumps(body):
        found = [f"{at}, by the model" for at in lost(read, body)] or ["keys in another order"]
    return found


def arithmetic(folder):
    """The release's own function for the counters, cut out of its class: the module needs a GPU stack."""
    source = (folder / "srt" / "managers" / "tokenizer_manager.py").read_text(encoding="utf-8")
    name = "_calculate_spec_decoding_metrics"
    wanted = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == name]
    code = compile(
        ast.Module(body=wanted, type_ignores=[]), "tokenizer_manager.py", "exec", __future__.annotations.compiler_flag
    )
    return code, name


def counters(code, name, step):
    """`meta_info` keys that the function gives for one finished request."""
    server = types.SimpleNamespace(
        speculative_num_draft_tokens=step["draft_tokens"], speculative_num_steps=step["draft_tokens"] - 1
    )
    known = {
        "BatchEmbeddingOutput": type("BatchEmbeddingOutput", (), {}),
        "get_spec": lambda: server,
        "_ragged_verify_cap_accept": lambda: False,
    }
    exec(code, known)
    batch = types.SimpleNamespace(
        completion_tokens=[step["completion_tokens"]],
        spec_verify_ct=[step["verify_ct"]],
        **{name: [step["accepted"]] for name in ACCEPTED},
        **{name: [step["histogram"]] for name in HISTOGRAM},
    )
    told = {}
    known[name](types.SimpleNamespace(server_args=server), told, batch, 0)
    return told


def main():
    tasks = json.load(sys.stdin)
    folder = entered()
    protocol = importlib.import_module("sglang.srt.entrypoints.openai.protocol")
    code, name = arithmetic(folder)
    document = {
        "release": version(),
        "found": [findings(protocol, task["kind"], task["body"]) for task in tasks["answers"]],
        "counters": [counters(code, name, step) for step in tasks["steps"]],
    }
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print(version())
    else:
        main()
