"""The command line. Bodies are thin: what they need is imported when they run, so that help is quick."""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from miles_sim.bench.cli import app as bench
from miles_sim.cli.campaign import campaign, shrink
from miles_sim.cli.chaos import chaos
from miles_sim.cli.faults import faults
from miles_sim.cli.options import AsJson, Checkout, Optimize, Packs, Python, Seed, TargetName, Workers
from miles_sim.cli.run import run
from miles_sim.cli.search import search
from miles_sim.cli.session import session
from miles_sim.cli.targets import baseline, bisect, compare, digest, doctor, rows, verdicts
from miles_sim.exits import HOLDS, VIOLATED, honest

if TYPE_CHECKING:
    from miles_sim.engine.settings import EngineSettings
    from miles_sim.verify.rule import Rule
    from miles_sim.verify.run import Run

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="""Contract tests and a simulator for code that turns agent rollouts into training samples.

    \b
    miles-sim verify                              our own implementation
    miles-sim verify --target miles --python PY   the miles that PY imports
    miles-sim run subagent-fork-after             one scenario, its samples
    miles-sim campaign --rollouts 10000           random rollouts under random faults
    miles-sim serve --port 30000                  a simulated SGLang engine
    miles-sim session --engine URL                the session server before any engine
    miles-sim chaos --upstream URL                faults before any engine

    Exit code: 0 all holds, 1 something is violated, 2 asked for what cannot be, 3 a fault of miles-sim itself,
    130 stopped by Ctrl-C, 141 who reads the output has closed it.
    """,
)

# ruff: noqa: UP045 - the oldest Typer that we allow reads no `X | None`


def verify(
    scenario: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="GLOB", help="Scenarios, as `retry-*`, `tools/v2` or a YAML file. Repeatable. Default: all."
        ),
    ] = None,
    skip: Annotated[
        Optional[list[str]], typer.Option(metavar="GLOB", help="Scenarios to leave out, as `fault-*`. Repeatable.")
    ] = None,
    contract: Annotated[
        Optional[list[str]], typer.Option(metavar="GLOB", help="Contracts, as `identity/*`. Repeatable. Default: all.")
    ] = None,
    contracts: Packs = None,
    target: TargetName = "reference",
    python: Python = None,
    optimize: Optimize = False,
    checkout: Checkout = None,
    workers: Workers = None,
    seed: Seed = 0,
    baseline: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="Known violations of this target version; strict both ways.")
    ] = None,
    json: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="Write the report as JSON; `-`: to standard output.")
    ] = None,
    junit: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="Write JUnit XML: a suite a contract, a test a case.")
    ] = None,
    markdown: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="Write Markdown for a comment on a pull request.")
    ] = None,
    html: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="Write one page: the matrix, trees, samples token by token.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only what is wrong, and the closing line.")] = False,
) -> None:
    """Play scenarios against a target and judge them by contracts.

    \b
    miles-sim verify --scenario 'subagent-*' --contract 'selection/*'
    miles-sim verify --scenario my-scenario.yaml --contracts my_contracts/
    miles-sim verify --target miles --python venv/bin/python --html report.html
    """
    with honest():
        from miles_sim.cli import choices
        from miles_sim.verify.baseline import load_baseline
        from miles_sim.verify.collector import Collector
        from miles_sim.verify.run import Run
        from miles_sim.verify.run import verify as judged

        files = choices.chosen_files(json=json, junit=junit, markdown=markdown, html=html)
        rules = choices.chosen_rules(contracts, contract)
        cases = choices.chosen_cases(scenario, skip)
        every = {rule.id for rule in choices.chosen_rules(contracts, None)}
        known = load_baseline(baseline, contracts=every) if baseline else None
        chosen = choices.TargetChoice(target, python, optimize, checkout, workers)

        async def work() -> Run:
            async with chosen.opened() as (opened, network):
                player = chosen.player(rules, contracts, len(cases))
                with choices.shown_progress(quiet) as progress, player as elsewhere:
                    return await judged(
                        cases,
                        opened,
                        rules,
                        network=network,
                        player=elsewhere,
                        seed=seed,
                        complete=not (scenario or skip or contract),
                        baseline=known,
                        command=("miles-sim", "verify", *chosen.options(contracts)),
                        files=choices.scenario_files(scenario),
                        progress=progress,
                    )

        with Collector():
            done = asyncio.run(work())
        _write_report(done, files, quiet)
    raise typer.Exit(HOLDS if done.report.holds else VIOLATED)


def scenarios(json: AsJson = False) -> None:
    """List the named scenarios."""
    with honest():
        from miles_sim.scenarios import library

        found = [library.load(name) for name in library.names()]
        if json:
            _write_json([scenario.model_dump(mode="json") for scenario in found])
        else:
            _write_rows([[s.name, "+".join(s.sessions), s.title] for s in found])


def list_contracts(
    folders: Packs = None,
    json: AsJson = False,
    witnesses: Annotated[
        bool, typer.Option("--witnesses", help="Play the whole library and show what each contract looked at where.")
    ] = False,
) -> None:
    """List the contracts: what each promises, and how severe it is.

    With --json also why it is asked, where it comes from, and what a target needs for it.

    \b
    miles-sim contracts --witnesses > contracts/witnesses.txt
    """
    with honest():
        from miles_sim.cli import choices

        rules = choices.chosen_rules(folders, None)
        if witnesses:
            typer.echo(asyncio.run(choices.witnesses_of(rules)), nl=False)
        elif json:
            _write_json([_rule_document(rule) for rule in rules])
        else:
            _write_rows([[rule.id, rule.severity.value, rule.statement] for rule in rules])


def profiles(
    name: Annotated[Optional[str], typer.Argument(help="One profile. Default: list them.")] = None,
    json: AsJson = False,
) -> None:
    """List the releases of SGLang that the engine can speak as.

    Of one also where it is known from. With --json all that is known of their wire.
    """
    with honest():
        from miles_sim.engine import profiles as known
        from miles_sim.engine.settings import EngineSettings

        found = {each: known.load(each) for each in ([name] if name else known.names())}
        if json:
            documents = [{"name": each, **profile.model_dump(mode="json")} for each, profile in found.items()]
            _write_json(documents[0] if name else documents)
        else:
            default = EngineSettings().profile
            rows = [[each, of.release, "default of serve" if each == default else ""] for each, of in found.items()]
            _write_rows(rows)
            if name:
                typer.echo(fill(" ".join(found[name].source.split()), width=110, break_on_hyphens=False))


def schemas(
    name: Annotated[Optional[str], typer.Argument(help="A document kind. Default: list them.")] = None,
    versions: Annotated[bool, typer.Option("--versions", help="Version and digest, as in versions.txt.")] = False,
) -> None:
    """Print the JSON Schema of a document, or list the documents.

    Scenario, ledger, report, samples wire, the engine's answers and others.
    """
    with honest():
        from miles_sim.cli.choices import Impossible
        from miles_sim.verify.schemas import entry, names, text

        if name is not None and name not in names():
            raise Impossible(f"schema: {name!r} is none of {', '.join(names())}")
        if versions:
            typer.echo("\n".join(entry(each) for each in ([name] if name else names())))
        else:
            typer.echo(text(name) if name else "\n".join(names()), nl=name is None)


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        Optional[list[int]],
        typer.Option(
            min=0,
            max=65535,
            help="Port; 0: any free one. Of several engines the first, which the others follow, or one for each, "
            "repeated. Default: 30000.",
        ),
    ] = None,
    engines: Annotated[int, typer.Option(min=1, max=256, help="How many, each with its own cache and ids.")] = 1,
    settings: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="Engine settings as YAML, reply rules among them.")
    ] = None,
    profile: Annotated[Optional[str], typer.Option(help="Release to speak; see `miles-sim profiles`.")] = None,
    tokenizer: Annotated[
        Optional[str], typer.Option(metavar="FAMILY", help="Chat template and tool format. Default: chatml.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all replies.")] = 0,
    speculative: Annotated[
        Optional[str], typer.Option(metavar="ALGORITHM", help="Speculative decoding, as EAGLE or NGRAM. Default: none.")
    ] = None,
    draft_tokens: Annotated[
        Optional[int], typer.Option(min=2, help="Ids a verify step looks at; alone, it sets EAGLE.")
    ] = None,
    acceptance: Annotated[
        Optional[str], typer.Option(metavar="P,P,…", help="Acceptance by draft position; alone, it sets EAGLE.")
    ] = None,
    accept_length: Annotated[
        Optional[float],
        typer.Option(metavar="IDS", help="In place of --acceptance: ids a verify step gives on average."),
    ] = None,
    clock: Annotated[
        Optional[str], typer.Option(metavar="off|virtual|real", help="Whose time requests take. Default: off, none.")
    ] = None,
    max_running_requests: Annotated[Optional[int], typer.Option(min=1, help="At once; with --clock.")] = None,
    max_queued_requests: Annotated[Optional[int], typer.Option(min=1, help="More are a 503; with --clock.")] = None,
    cache_tokens: Annotated[Optional[int], typer.Option(min=1, help="Of the prefix cache. Default: 1048576.")] = None,
    metrics: Annotated[Optional[bool], typer.Option("--enable-metrics", help="Serve /metrics.")] = None,
    keep: Annotated[Optional[int], typer.Option(min=0, help="Generations in memory. Default: the last 1000.")] = None,
    spool: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="Append each generation to a file, one JSON document a line.")
    ] = None,
) -> None:
    """Serve simulated SGLang engines, until stopped.

    Of several, all give one question the same reply.

    \b
    miles-sim serve --port 30000 --speculative EAGLE --acceptance 0.8,0.6,0.4
    miles-sim serve --engines 2 --port 30000 --port 30100
    """
    with honest():
        from miles_sim.cli import choices

        chosen = choices.chosen_engine(
            settings,
            {
                "profile": profile,
                "tokenizer": tokenizer,
                "max_running_requests": max_running_requests,
                "max_queued_requests": max_queued_requests,
                "cache_tokens": cache_tokens,
                "metrics": metrics,
            },
            {
                "algorithm": speculative,
                "draft_tokens": draft_tokens,
                "acceptance": choices.probabilities(acceptance),
                "accept_length": accept_length,
            },
            {"clock": clock},
            {"keep": keep, "spool": str(spool) if spool else None},
        )
        asyncio.run(_serve(chosen, seed, engines, host, [30_000] if port is None else port))


async def _serve(settings: "EngineSettings", seed: int, engines: int, host: str, ports: list[int]) -> None:
    from miles_sim.engine.fleet import Fleet
    from miles_sim.transport import settle

    async with Fleet(settings, engines, seed=seed).served(host=host, ports=ports) as urls:
        settle()
        typer.echo(f"serving {settings.profile} at {' '.join(urls)}; Ctrl-C stops it")
        await _terminated()


async def _terminated() -> None:
    """Until the process is told to end; Ctrl-C breaks off on its own."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()


def _version(asked: bool) -> None:
    if asked:
        from miles_sim import __version__

        typer.echo(f"miles-sim {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """What a run meets stands in its report; the log goes nowhere unless a handler is set."""
    logging.getLogger("miles_sim").addHandler(logging.NullHandler())


def _write_report(done: "Run", files: dict[str, Path], quiet: bool) -> None:
    """The console's report and `files`; with `--json -` the console is standard error, standard output the document."""
    from miles_sim.report.console import console, print_report
    from miles_sim.report.files import write

    to_stdout = files.get("json") == Path("-")
    if to_stdout:
        del files["json"]
        sys.stdout.buffer.write(done.report.to_json())
        sys.stdout.flush()
    print_report(done.report, done.cases, console(sys.stderr if to_stdout else sys.stdout), quiet=quiet)
    write(done.report, done.cases, files)


def _rule_document(rule: "Rule") -> dict[str, Any]:
    return {
        "id": rule.id,
        "statement": rule.statement,
        "reason": rule.reason,
        "source": rule.source,
        "level": rule.level.name.lower(),
        "severity": rule.severity.value,
        "needs": sorted(rule.needs),
        "scope": rule.scope,
    }


def _write_json(document: Any) -> None:
    import orjson

    sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")


def _write_rows(rows: list[list[str]]) -> None:
    from miles_sim.report.text import columns

    for line in columns(rows):
        typer.echo(line)


IN_ORDER: dict[str, Callable[..., None]] = {
    "verify": verify,
    "run": run,
    "scenarios": scenarios,
    "contracts": list_contracts,
    "doctor": doctor,
    "compare": compare,
    "bisect": bisect,
    "baseline": baseline,
    "faults": faults,
    "campaign": campaign,
    "search": search,
    "shrink": shrink,
    "serve": serve,
    "session": session,
    "chaos": chaos,
    "profiles": profiles,
    "schemas": schemas,
    "digest": digest,
    "verdicts": verdicts,
    "rows": rows,
}
"""As `--help` lists them: judging, implementations under contract, what goes wrong, servers, documents."""

for name, command in IN_ORDER.items():
    app.command(name=name)(command)
app.add_typer(bench, name="bench")
