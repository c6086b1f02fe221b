"""The routes of docs/engine.md, as the releases and the simulated engine have them.

Run as a script it writes them into the page.
"""

from pathlib import Path

from miles_sim.engine import profiles
from miles_sim.engine.engine import Engine
from miles_sim.engine.release import release
from miles_sim.engine.server import GENERATING, plane
from miles_sim.engine.settings import EngineSettings

PAGE = Path(__file__).parents[2] / "docs/engine.md"
BEGIN, END = "<!-- routes, written by tests/engine/routes_table.py -->\n", "<!-- end of routes -->\n"
MODELLED, REFUSED, ABSENT = "yes", "501", "–"


def status(path: str, profile: str) -> str:
    """Whether the release has the path, and what becomes of it."""
    if path == "/metrics":
        return MODELLED
    if path not in release(profile).routes:
        return ABSENT
    return MODELLED if path in modelled() else REFUSED


def modelled() -> set[str]:
    return {*GENERATING, *plane(Engine(EngineSettings(), seed=0))}


def paths() -> list[str]:
    return sorted({path for profile in profiles.names() for path in release(profile).routes} | {"/metrics"})


def table() -> str:
    names = profiles.names()
    short = [name.removeprefix("sglang-") for name in names]
    rows = [f"| `{path}` | " + " | ".join(status(path, name) for name in names) + " |" for path in paths()]
    return "\n".join([f"| path | {' | '.join(short)} |", "|---" * (len(names) + 1) + "|", *rows]) + "\n"


def shown() -> str:
    """What the page has."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(head + BEGIN + table() + END + rest.partition(END)[2], encoding="utf-8")
