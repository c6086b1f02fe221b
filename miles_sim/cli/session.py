"""`miles-sim session`: the session server alone, before whatever engine there is."""

import asyncio
import logging
import signal
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from miles_sim.exits import honest

if TYPE_CHECKING:
    from miles_sim.rollout.settings import RolloutSettings
    from miles_sim.tokenizer import ChatTokenizer

# ruff: noqa: UP045 - the oldest Typer that we allow reads no `X | None`


def session(
    engine: Annotated[
        str, typer.Option(metavar="URL", help="The engine, or a router before several: where SGLang's API is served.")
    ],
    version: Annotated[
        Optional[str], typer.Option("--session", metavar="v1|v2", help="Linear or tree sessions. Default: v2.")
    ] = None,
    tokenizer: Annotated[
        str,
        typer.Option(
            metavar="FAMILY|FOLDER",
            help="For a simulated engine its family, as `chatml`; for a real one the Hugging Face folder of its model "
            "(needs the extra `hf`).",
        ),
    ] = "chatml",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = 31000,
    speculative: Annotated[
        Optional[str], typer.Option(metavar="ALGORITHM", help="Collect the engine's speculative counters.")
    ] = None,
    max_seq_len: Annotated[Optional[int], typer.Option(min=1, help="Most ids of a sample. Default: no limit.")] = None,
    message_matcher: Annotated[
        Optional[str],
        typer.Option(
            metavar="NAME",
            help="When a replayed message is the stored one: `strict`, `loose_tool_call`, `role_content_only` or a "
            "dotted path. Default: strict.",
        ),
    ] = None,
    idle_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="A session without a request for so long is closed; 0: never.")
    ] = 3600.0,
    settings: Annotated[
        Optional[Path],
        typer.Option(metavar="FILE", help="Any field of `RolloutSettings`, as YAML; options go before it."),
    ] = None,
) -> None:
    """Serve the session server before any engine, until stopped.

    The engine may be a real SGLang.

    An agent's base URL is `http://HOST:PORT/sessions/ID/v1`.

    \b
    curl -X POST http://127.0.0.1:31000/sessions                    a new session: {"session_id": ID}
    curl http://127.0.0.1:31000/sessions/ID                         its records and, under metadata.tree, its tree
    curl -X POST http://127.0.0.1:31000/sessions/ID/samples -o F    its samples, a safetensors file
    curl -X DELETE http://127.0.0.1:31000/sessions/ID

    \b
    miles-sim session --engine http://127.0.0.1:30000
    miles-sim session --engine http://gpu:30000 --tokenizer models/Qwen3-8B --speculative EAGLE
    """
    with honest():
        given = {
            "session": version,
            "speculative_algorithm": speculative,
            "max_seq_len": max_seq_len,
            "message_matcher": message_matcher,
        }
        chosen = chosen_settings(settings, given, idle_timeout=idle_timeout)
        asyncio.run(_serve(chosen, chosen_tokenizer(tokenizer), engine, host, port))


def chosen_settings(file: Path | None, given: dict[str, Any], *, idle_timeout: float) -> "RolloutSettings":
    """Settings of a YAML file, with `given` (where not None) in their place. SettingsError names what does not fit."""
    from miles_sim.rollout.errors import SettingsError
    from miles_sim.rollout.settings import RolloutSettings
    from miles_sim.yaml_file import YamlFile

    read = YamlFile(file).data if file else {}
    if not isinstance(read, dict):
        raise SettingsError(f"{file}: {type(read).__name__}, not a mapping")
    known = [spec.name for spec in fields(RolloutSettings)]
    if unknown := [name for name in read if name not in known]:
        raise SettingsError(f"{file}: {unknown[0]!r} is not one of {', '.join(known)}")
    idle = {"session_idle_timeout": idle_timeout or None}
    return RolloutSettings(**{**idle, **read, **{name: value for name, value in given.items() if value is not None}})


def chosen_tokenizer(name: str) -> "ChatTokenizer":
    """A built-in family, or the tokenizer of a Hugging Face folder. TokenizerError names what there is."""
    from miles_sim.tokenizer import FAMILIES, ByteTokenizer, TokenizerError

    if name in FAMILIES:
        return ByteTokenizer(name)
    if not Path(name).is_dir():
        raise TokenizerError(f"tokenizer: {name!r} is no folder, and not one of {', '.join(sorted(FAMILIES))}")
    from miles_sim.hf_tokenizer import HuggingFaceTokenizer

    return HuggingFaceTokenizer(name)


async def _serve(settings: "RolloutSettings", tokenizer: "ChatTokenizer", engine: str, host: str, port: int) -> None:
    from miles_sim.rollout.errors import SettingsError
    from miles_sim.rollout.session.server import SessionServer
    from miles_sim.transport import serve as listening

    if not engine.startswith(("http://", "https://")):
        raise SettingsError(f"engine: {engine!r} is not an http or https URL")
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    server = SessionServer(settings, tokenizer, engine)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    try:
        async with listening(server.app, host=host, port=port) as url:
            typer.echo(f"serving {settings.session} sessions at {url} before {engine}; Ctrl-C stops it")
            await ended.wait()
    finally:
        await server.aclose()
