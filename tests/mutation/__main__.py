"""`python -m tests.mutation`: how many mutants of `miles_sim/rollout` the laws and the contract pack kill."""

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from .judge import Judge, Verdict, measured, sources
from .mutants import PACKAGE, Mutant, mutants
from .score import row, summary


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--module", default="*", metavar="GLOB", help="modules, as 'session/tree' or 'direct/*'")
    parser.add_argument("--sample", type=int, metavar="N", help="judge N mutants drawn by --seed; default: all")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument(
        "--what",
        choices=["functions", "imports", "all"],
        default="all",
        help="what to mutate: functions (a quarter of a second each), what runs at import (seconds each), or all",
    )
    parser.add_argument(
        "--quick",
        type=float,
        metavar="SECONDS",
        help="run tests for at most so long a mutant, the quickest first, and only some of the cases it reaches; what "
        "survives wants another run, by --only and without this",
    )
    parser.add_argument("--only", type=Path, metavar="FILE", help="judge those that survive in this --json FILE")
    parser.add_argument("--rules-alone", action="store_true", help="judge by the rules of the pack, and nothing else")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="one line a mutant, added as each is judged; what FILE holds already is not judged again",
    )
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Exit code 0 where at least nine of ten are killed."""
    arguments = _arguments(given)
    chosen = _chosen(arguments)
    reach = measured()
    judge = Judge(reach, laws=not arguments.rules_alone, rules_alone=arguments.rules_alone, quick=arguments.quick)
    rows = {row["id"]: row for row in _lines(arguments.json)}
    left = [mutant for mutant in chosen if mutant.id not in rows]
    begun = time.monotonic()

    def told(mutant: Mutant, verdict: Verdict) -> None:
        rows[mutant.id] = row(mutant, verdict)
        if arguments.json:
            with arguments.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[mutant.id]) + "\n")
        done = sum(mutant.id in rows for mutant in left)
        if done % 50 == 0:
            print(f"{done} of {len(left)}, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)

    judge.on_import([mutant for mutant in left if not mutant.function], told)
    judge.in_place([mutant for mutant in left if mutant.function], told)
    if unjudged := [mutant for mutant in chosen if mutant.id not in rows]:
        raise SystemExit(f"{len(unjudged)} mutants were not judged: do all tests load?")
    text, share = summary([rows[mutant.id] for mutant in chosen])
    sys.stdout.write(text)
    return int(share < 0.9)


def _chosen(arguments: argparse.Namespace) -> list[Mutant]:
    found = [
        mutant
        for path in sources()
        if fnmatchcase(str(path.relative_to(PACKAGE).with_suffix("")), arguments.module)
        for mutant in mutants(path)
        if arguments.what == "all" or (arguments.what == "functions") == bool(mutant.function)
    ]
    if arguments.only:
        alive = {row["id"] for row in _lines(arguments.only) if row["verdict"] in ("survived", "unreached")}
        found = [mutant for mutant in found if mutant.id in alive]
    if arguments.sample is not None and arguments.sample < len(found):
        return random.Random(arguments.seed).sample(found, arguments.sample)
    random.Random(arguments.seed).shuffle(found)
    return found


def _lines(path: Path | None) -> list[dict[str, str]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    sys.exit(main())
