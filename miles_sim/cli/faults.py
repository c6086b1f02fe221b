"""The `faults` command: the catalogue of what can go wrong."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from miles_sim.cli.options import AsJson
from miles_sim.exits import honest

if TYPE_CHECKING:
    from miles_sim.faults.kind import Kind

# ruff: noqa: UP045 - the oldest Typer that we allow reads no `X | None`


def faults(
    name: Annotated[
        Optional[str], typer.Argument(metavar="NAME", help="One kind, in full. Default: list them.")
    ] = None,
    layer: Annotated[
        Optional[str],
        typer.Option(
            metavar="LAYER",
            help="Only those of one layer: transport, http, payload, model, engine, agent, session, consumer.",
        ),
    ] = None,
    json: AsJson = False,
    write: Annotated[
        Optional[Path], typer.Option("--write", metavar="DIR", help="Write a scenario file for each kind alone.")
    ] = None,
    session: Annotated[
        Optional[list[str]],
        typer.Option(metavar="v1|v2|direct", help="With --write, the session versions. Repeatable. Default: all."),
    ] = None,
    report: Annotated[
        Optional[Path],
        typer.Option("--report", metavar="FILE", help="Print, of a report over such files, what came of each kind."),
    ] = None,
    page: Annotated[
        Optional[Path],
        typer.Option("--page", metavar="DIR", help="Print the catalogue as Markdown, a column a file of --report."),
    ] = None,
) -> None:
    """List the kinds of fault, and what must come of each.

    A scenario's `faults` names kinds, and says where and when they strike.

    \b
    miles-sim faults --layer http
    miles-sim faults http-503
    miles-sim run fault-http-status
    miles-sim faults --page docs/faults > docs/fault-kinds.md
    """
    with honest():
        from miles_sim.cli.choices import Impossible

        if session and write is None:
            raise Impossible(f"session: {', '.join(session)}: of use with --write alone")
        if name is not None and layer is not None:
            raise Impossible(f"layer: {layer!r} beside the kind {name!r}: one of both is due")
        if write is not None:
            _write_singles(write, session)
            return
        if report is not None:
            _print_cells(report)
            return
        if page is not None:
            from miles_sim.report.fault_page import page as text

            typer.echo(text(_chosen(None, layer), _columns(page)), nl=False)
            return
        found = [kind_document(kind) for kind in _chosen(name, layer)]
        if json:
            import orjson

            document = found[0] if name else found
            sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
        else:
            from miles_sim.report.text import columns

            for line in columns(_whole(found[0]) if name else [_row(kind) for kind in found]):
                typer.echo(line)


def kind_document(kind: "Kind") -> dict[str, Any]:
    """One kind as plain data; `params` is the JSON schema of its parameters."""
    return {
        "name": kind.name,
        "layer": kind.layer,
        "edge": kind.edge,
        "at": kind.at,
        "statement": kind.statement,
        "verdict": kind.verdict,
        "under": dict(kind.under),
        "reason": kind.reason,
        "counters": sorted(kind.counters),
        "radius": kind.radius,
        "copies": kind.copies,
        "takes_all": kind.takes_all,
        "scenario": kind.scenario,
        "params": kind.params.model_json_schema().get("properties", {}),
    }


def _chosen(name: str | None, layer: str | None) -> "list[Kind]":
    from miles_sim.cli.choices import Impossible
    from miles_sim.faults.catalogue import UnknownFaultError, kind_named, kinds

    if name is not None:
        try:
            return [kind_named(name)]
        except UnknownFaultError as error:
            raise Impossible(str(error)) from None
    layers = sorted({kind.layer for kind in kinds().values()})
    if layer is not None and layer not in layers:
        raise Impossible(f"layer: {layer!r} is not one of {', '.join(layers)}")
    return [kind for kind in kinds().values() if layer in (None, kind.layer)]


def _row(kind: dict[str, Any]) -> list[str]:
    return [kind["name"], kind["layer"], kind["verdict"], kind["statement"]]


def _whole(kind: dict[str, Any]) -> list[list[str]]:
    told = {
        name: value for name, value in kind.items() if name != "params" and value and (name, value) != ("copies", 1)
    }
    rows = [[name, value if isinstance(value, str) else _words(value)] for name, value in told.items()]
    for name, schema in kind["params"].items():
        rows.append(["param", f"{name}: {schema.get('description', '')} (default {schema.get('default')!r})"])
    return rows


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {each}" for name, each in value.items())
    if isinstance(value, int):
        return "yes" if value is True else str(value)
    return ", ".join(map(str, value))


def _write_singles(folder: Path, sessions: list[str] | None) -> None:
    from miles_sim.cli.choices import Impossible, chosen_folder
    from miles_sim.faults.catalogue import kinds
    from miles_sim.scenarios.single import DIRECT_EDGES, SESSIONS, single
    from miles_sim.scenarios.written import scenario_yaml

    wanted = tuple(session for session in SESSIONS if session in (sessions or SESSIONS))
    if unknown := sorted(set(sessions or ()) - set(SESSIONS)):
        raise Impossible(f"session: {unknown[0]!r} is not one of {', '.join(SESSIONS)}")
    chosen_folder(write=folder).mkdir(parents=True, exist_ok=True)
    for kind in kinds().values():
        if wanted != ("direct",) or kind.edge in DIRECT_EDGES:
            scenario = single(kind, wanted)
            (folder / f"{scenario.name}.yaml").write_text(scenario_yaml(scenario), encoding="utf-8")


def _print_cells(file: Path) -> None:
    import orjson

    from miles_sim.faults.catalogue import kinds
    from miles_sim.report.fault_page import cells
    from miles_sim.scenarios.single import single
    from miles_sim.verify.compare import load_report

    known = {single(kind).name: [kind.name] for kind in kinds().values()}
    told = cells(load_report(file), known)
    sys.stdout.buffer.write(orjson.dumps(told, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")


def _columns(folder: Path) -> list[tuple[str, dict[str, str]]]:
    import orjson

    from miles_sim.cli.choices import json_files

    files = sorted(json_files(folder), key=lambda file: (file.stem != "reference", file.stem))
    return [(file.stem, orjson.loads(file.read_bytes())) for file in files]
