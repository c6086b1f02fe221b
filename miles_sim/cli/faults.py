"""The `faults` command: the catalogue of what can go wrong."""

import sys
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
) -> None:
    """List the kinds of fault: what each does, and what must come of it.

    A scenario's `faults` names kinds, and says where and when they strike.

    \b
    miles-sim faults --layer http
    miles-sim faults http-503
    miles-sim run fault-http-status
    """
    with honest():
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
    told = {name: value for name, value in kind.items() if name != "params" and value not in (None, [], {})}
    rows = [[name, value if isinstance(value, str) else _words(value)] for name, value in told.items()]
    for name, schema in kind["params"].items():
        rows.append(["param", f"{name}: {schema.get('description', '')} (default {schema.get('default')!r})"])
    return rows


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {each}" for name, each in value.items())
    return ", ".join(map(str, value))
