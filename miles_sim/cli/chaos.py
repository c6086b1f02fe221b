"""`miles-sim chaos`: faults in front of any engine or router."""

import asyncio
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from miles_sim.cli.options import AsJson
from miles_sim.exits import honest

if TYPE_CHECKING:
    from miles_sim.faults.chaos import Pick, Tally

# ruff: noqa: UP045 - the oldest Typer that we allow reads no `X | None`


def chaos(
    upstream: Annotated[str, typer.Option(metavar="URL", help="The engine or router that requests go to.")],
    faults: Annotated[
        Optional[list[str]],
        typer.Option(metavar="GLOB", help="Kinds, as `http-*` (see `miles-sim faults`); by default all. Repeatable."),
    ] = None,
    probability: Annotated[
        float, typer.Option(min=0, max=1, help="How likely a request is struck, by one of the kinds at random.")
    ] = 0.1,
    plan: Annotated[
        Optional[Path],
        typer.Option(
            metavar="FILE", help="In place of a draw: YAML with `faults`, as in a scenario; `where.step` is a digest."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides all draws.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = 30001,
    journal: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="A line of JSON for each strike, fired or impossible.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Put faults in front of a real engine or router, until stopped.

    Its kinds are those of the transport, HTTP and payload layers. A request's place is what it asks and how often that
    has been asked before: the same requests under the same seed are struck alike, in whatever order they come. Only
    the generating routes are struck. What passes unstruck passes unbuffered, streams too. When it stops (SIGTERM,
    Ctrl-C) it tells what fired and what could not.

    \b
    miles-sim chaos --upstream http://127.0.0.1:30000
    miles-sim chaos --upstream http://gpu:30000 --faults 'http-5*' --faults 'transport-reset-*' --probability 0.02
    miles-sim chaos --upstream http://gpu:30000 --plan plan.yaml --journal strikes.jsonl --json
    """
    with honest():
        from miles_sim.cli.choices import chosen_files
        from miles_sim.faults.chaos import Tally

        chosen_files(journal=journal)
        pick = chosen_faults(faults, probability, plan, seed)
        asyncio.run(_serve(checked_upstream(upstream), pick, Tally(), seed, host, port, journal, json))


def chosen_faults(globs: list[str] | None, probability: float, plan: Path | None, seed: int) -> "Pick":
    """What strikes. `ChaosPlanError`, or an error of the plan's document, names what cannot be."""
    from miles_sim.faults.chaos import ChaosPlanError, by_plan, drawn, orders_of, planned, read_plan

    if plan is None:
        return drawn(orders_of(globs or ["*"]), probability=probability, seed=seed)
    if globs:
        raise ChaosPlanError("faults: a plan names its kinds itself; leave out --faults or --plan")
    return by_plan(planned(read_plan(plan)), seed=seed)


def checked_upstream(url: str) -> str:
    """The URL without a slash at its end; `ChaosPlanError` for one that is none."""
    import httpx

    from miles_sim.faults.chaos import ChaosPlanError

    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ChaosPlanError(f"upstream: {url!r} is no URL: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query:
        raise ChaosPlanError(f"upstream: {url!r} is not an http or https URL of a server")
    return url.rstrip("/")


async def _serve(
    upstream: str, pick: "Pick", tally: "Tally", seed: int, host: str, port: int, journal: Path | None, json: bool
) -> None:
    from miles_sim.faults.chaos import ChaosInjector, ChaosTransport
    from miles_sim.faults.proxy import Upstream, proxied, reach

    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await reach(upstream)
    inner = Upstream(upstream)
    with ExitStack() as stack:
        lines = stack.enter_context(journal.open("w", encoding="utf-8", buffering=1)) if journal else None
        write = lines.write if lines else len
        transport = ChaosTransport(
            inner, ChaosInjector(pick, tally, seed=seed), upstream=upstream, tally=tally, write=write
        )
        try:
            async with proxied(upstream, transport, host=host, port=port) as url:
                stack.callback(_tell, tally, json)
                typer.echo(f"faults at {url} before {upstream}; Ctrl-C stops it", err=json)
                await ended.wait()
        finally:
            await inner.aclose()


def _tell(tally: "Tally", json: bool) -> None:
    import orjson

    told = tally.document()
    if json:
        typer.echo(orjson.dumps(told, option=orjson.OPT_INDENT_2).decode())
        return
    typer.echo(f"{told['requests']} requests, {told['fired']} struck, {told['could_not']} could not be struck")
    for row in told["by_kind"]:
        typer.echo(f"  {row['kind']:<32} {row['fired']:>6} struck {row['could_not']:>6} could not")
