"""miles' MockSGLangServer in a process of its own, run by the interpreter that has miles; needs nothing of miles-sim.

    PYTHON mock.py TOKENIZER_FOLDER REPLY_FILE [CHECKOUT]

It says `ready URL` and serves until its input ends. What miles prints goes to the standard error stream.
"""

import importlib
import os
import sys
from pathlib import Path


def main(tokenizer: str, reply: str, checkout: str | None = None) -> None:
    """Serve the mock with that reply for everything."""
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path[0:1] = [] if checkout is None else [checkout]
    module = importlib.import_module("miles.utils.test_utils.mock_sglang_server")
    text = Path(reply).read_text(encoding="utf-8")
    with module.with_mock_server(
        model_name=tokenizer, process_fn=lambda prompt: module.ProcessResult(text=text, finish_reason="length")
    ) as server:
        said.write(f"ready {server.url}\n")
        said.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
