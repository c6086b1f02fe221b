"""The command line: one module a group of commands, `commands` puts them together."""

import sys
import traceback
from typing import TYPE_CHECKING, Any

from miles_sim.exits import BROKEN, INTERRUPTED

if TYPE_CHECKING:
    from miles_sim.cli.commands import app

__all__ = ["app", "main"]


def main() -> None:
    """Entry point of the `miles-sim` command. What it needs is loaded here, so that Ctrl-C ends that quietly, too."""
    try:
        from miles_sim.cli.commands import app

        app(prog_name="miles-sim")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception:
        traceback.print_exc()
        sys.exit(BROKEN)


def __getattr__(name: str) -> Any:
    """`app`, loaded when it is asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from miles_sim.cli.commands import app

    return app
