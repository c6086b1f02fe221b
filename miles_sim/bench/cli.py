"""`miles-sim bench`: one command a benchmark, both sides measured in one run; it prints figures, never a verdict."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from miles_sim.exits import HOLDS, VIOLATED, honest

if TYPE_CHECKING:
    from miles_sim.bench.beside import Miles

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Measure how quick the parts are, beside what they replace.",
)

# ruff: noqa: UP045 - the oldest Typer that we allow reads no `X | None`
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object, on standard output.")]
MilesPython = Annotated[
    Optional[Path],
    typer.Option("--miles-python", metavar="PATH", help="Interpreter that has miles, to be measured beside."),
]
Checkout = Annotated[
    Optional[Path],
    typer.Option("--checkout", metavar="PATH", help="Source tree of miles, in place of an installed one."),
]


@app.callback()
def _root() -> None:
    """A callback keeps the name of a command in the line even where it is the only one."""


@app.command()
def engine(
    seconds: Annotated[float, typer.Option(min=0.1, help="Measured for each server.")] = 8.0,
    connections: Annotated[int, typer.Option(min=1, max=1024, help="Kept open, one request at a time on each.")] = 16,
    samples: Annotated[
        int, typer.Option(min=1, max=1024, help="Times in a row that each prompt is asked, as for a group of samples.")
    ] = 8,
    miles_python: MilesPython = None,
    checkout: Checkout = None,
    json: AsJson = False,
) -> None:
    """Chat requests a second over a socket: 1,000 prompt ids, 256 sampled ids with logprobs and meta_info.

    Beside the engine, by turns: a server of the same stack that returns the engine's bytes unthinking (the floor),
    and, with --miles-python, miles' MockSGLangServer. Each is a process; the load comes from another.

    \b
    rps          answers a second of the engine
    floor_rps    of the unthinking server           ratio_floor   rps / floor_rps
    mock_rps     of miles' mock, null without       ratio_mock    rps / mock_rps
    """
    with honest():
        from miles_sim.bench.engine import measure

        miles = _miles(miles_python, checkout)
        python, tree = (miles.python, miles.checkout) if miles else (None, None)
        found = measure(seconds=seconds, connections=connections, miles_python=python, checkout=tree, samples=samples)
        show(found.document(), json)


@app.command()
def linear(
    rounds: Annotated[int, typer.Option(min=1, help="Times that each point is measured; the least counts.")] = 8,
    json: AsJson = False,
) -> None:
    """CPU time of a chat request, in this process: 1,000 to 8,000 prompt ids, 256 to 2,048 sampled ids.

    \b
    prompt, reply                  tokens, microseconds of one request
    prompt_growth, reply_growth    by which factor twice the tokens cost more (2.0: linear; what every request costs,
                                   whatever its length, makes it less)
    """
    with honest():
        from miles_sim.bench.linear import measure

        show(measure(rounds=rounds).document(), json)


@app.command()
def memory(
    requests: Annotated[int, typer.Option(min=20, help="Small chat requests, each another question.")] = 100_000,
    json: AsJson = False,
) -> None:
    """Memory of an engine with a bounded ledger and a bounded prefix cache, in this process.

    \b
    rss_mb      resident memory after each twentieth of the requests
    growth_mb   what the last quarter has more than the second, on average (about 0: flat)
    """
    with honest():
        from miles_sim.bench.memory import measure

        show(measure(requests=requests).document(), json)


@app.command()
def merge(
    seconds: Annotated[float, typer.Option(min=0.001, help="Measured for each point; the quickest call counts.")] = 0.5,
    miles_python: MilesPython = None,
    checkout: Checkout = None,
    json: AsJson = False,
) -> None:
    """Seconds to merge 8 to 1,024 turns of 200 ids each into one sample.

    \b
    points                turns, tokens, seconds
    growth_per_doubling   by which factor twice the turns take longer (2.0: linear)
    ratio_miles           how often ours fits into miles' merge_samples, at 256 turns; null without
    """
    with honest():
        from miles_sim.bench.merge import measure

        show(measure(seconds=seconds, miles=_miles(miles_python, checkout)).document(), json)


@app.command()
def attach(
    seconds: Annotated[float, typer.Option(min=0.001, help="Measured for each point; the quickest call counts.")] = 0.2,
    miles_python: MilesPython = None,
    checkout: Checkout = None,
    json: AsJson = False,
) -> None:
    """Microseconds to find a request's place in a session's tree of 16 to 1,024 nodes, and to tokenise it there.

    \b
    points          nodes, microseconds
    ratio_1024_16   what a tree of 1,024 nodes costs over one of 16 (1.0: its size costs nothing)
    miles_points    of miles' search for the place alone; null without, or where it has no tree sessions
    """
    with honest():
        from miles_sim.bench.attach import measure

        show(measure(seconds=seconds, miles=_miles(miles_python, checkout)).document(), json)


@app.command()
def rollout(
    seconds: Annotated[float, typer.Option(min=0.001, help="Measured for each side.")] = 5.0,
    miles_python: MilesPython = None,
    checkout: Checkout = None,
    json: AsJson = False,
) -> None:
    """Whole rollouts a second, one after the other: five generations, two leaves, an engine that does not think.

    \b
    rollouts_per_second   of our generate and session server, in one process
    ratio_miles           ours / miles' own generate and session server; null without, or without tree sessions
    """
    with honest():
        from miles_sim.bench.rollout import measure

        show(measure(seconds=seconds, miles=_miles(miles_python, checkout)).document(), json)


def _miles(python: Path | None, checkout: Path | None) -> "Miles | None":
    from miles_sim.bench.beside import Miles
    from miles_sim.bench.load import BenchError

    if python is None:
        if checkout is not None:
            raise BenchError(
                f"checkout: {checkout}: --miles-python is due beside it: the interpreter that can import it"
            )
        return None
    return Miles(str(python), None if checkout is None else str(checkout.resolve()))


@app.command()
def fuzz(
    examples: Annotated[int, typer.Option(min=1, help="Requests, by turns to engines of all profiles.")] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds send equal requests.")] = 0,
    json: AsJson = False,
) -> None:
    """Send random requests, most of them bad, to all endpoints of all profiles: none may crash or hang an engine.

    A 500 among the statuses is the release's own. Exit code 1 where there is a fault; each is told with its request.

    \b
    miles-sim bench fuzz --examples 2000 --seed 7
    """
    with honest():
        import asyncio

        from miles_sim.bench.fuzz import fuzz as fuzzed

        found = asyncio.run(fuzzed(examples, seed=seed))
        document = found.document()
        show(document if json else {**document, "faults": len(found.faults)}, json)
        for fault in () if json else found.faults:
            typer.echo(f"\n{fault}")
    raise typer.Exit(VIOLATED if found.faults else HOLDS)


def show(figures: dict[str, Any], json: bool) -> None:
    """Figures by name: as one JSON object, or one a line; what was not measured is null."""
    import orjson

    if json:
        sys.stdout.buffer.write(orjson.dumps(figures) + b"\n")
        return
    width = max(map(len, figures))
    for name, value in figures.items():
        for line in value if isinstance(value, list) else [value]:
            typer.echo(f"{name:<{width}}  {_text(line)}")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{name} {number:.6g}" for name, number in value.items())
    return "not measured" if value is None else str(value)
