"""`miles-sim bench`: one command a benchmark, both sides measured in one run; it prints figures, never a verdict."""

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Measure how quick the parts are beside what they stand in for, side by side in one run.",
)


@app.callback()
def _root() -> None:
    """A callback keeps the name of a command in the line even where it is the only one."""
