"""Options that several commands have in common."""

from pathlib import Path
from typing import Annotated, Optional

import typer

# ruff: noqa: UP045 - the oldest Typer that we allow reads no `X | None`
TargetName = Annotated[
    str, typer.Option("--target", metavar="NAME", help="`reference`, `miles`, or your adapter as `pkg.mod:factory`.")
]
Python = Annotated[
    Optional[Path], typer.Option("--python", metavar="PATH", help="Interpreter that has the target installed.")
]
Optimize = Annotated[bool, typer.Option("--optimize", help="Run the target under `python -O`, without its asserts.")]
Checkout = Annotated[
    Optional[Path],
    typer.Option("--checkout", metavar="PATH", help="Source tree of the target, in place of an installed one."),
]
Workers = Annotated[
    Optional[int],
    typer.Option(
        "--workers",
        min=1,
        max=64,
        help="Processes side by side; the report is the same for any number. Default: one, and for `reference` up to "
        "four where there are as many cores and cases enough.",
    ),
]
Packs = Annotated[
    Optional[list[Path]],
    typer.Option(
        "--contracts", metavar="DIR", help="A folder of your own contracts, beside the built-in pack. Repeatable."
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Added to each scenario's own seed.")]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable, on standard output.")]
