"""Routes of an unpacked SGLang, read from its decorators: its version, then `path METHODS` a line.

Takes the folder with the package; imports nothing of it.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FILES = ("http_server.py", "v1_loads.py", "elastic_ep.py")
VERBS = {"get", "head", "post", "put", "delete"}


def routes(source: str) -> Iterator[tuple[str, set[str]]]:
    """(path, methods) of each decorator of an app or a router."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args:
                    yield from _route(call, call.func.attr)


def _route(call: ast.Call, verb: str) -> Iterator[tuple[str, set[str]]]:
    path = _path(call.args[0])
    if path is None or verb not in VERBS | {"api_route"}:
        return
    given = [keyword.value for keyword in call.keywords if keyword.arg == "methods"]
    yield path, set(ast.literal_eval(given[0])) if given else {"GET" if verb == "api_route" else verb.upper()}


def _path(node: ast.expr) -> str | None:
    """A constant, or the default of an environment variable."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return _path(node.args[1]) if isinstance(node, ast.Call) and len(node.args) == 2 else None


def main(folder: str) -> None:
    found: dict[str, set[str]] = {}
    for file in FILES:
        for place in sorted(Path(folder).glob(f"sglang/srt/entrypoints/**/{file}")):
            for path, methods in routes(place.read_text(encoding="utf-8")):
                found.setdefault(path, set()).update(methods)
    (info,) = Path(folder).glob("sglang-*.dist-info")
    print(info.name.removeprefix("sglang-").removesuffix(".dist-info"))
    for path, methods in sorted(found.items()):
        print(path, ",".join(sorted(methods)))


if __name__ == "__main__":
    main(sys.argv[1])
