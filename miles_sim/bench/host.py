"""What is measured, in a process of its own: it says `ready URL` and serves until its input ends.

python -m miles_sim.bench.host engine            the simulated engine
python -m miles_sim.bench.host bytes FILE        the bytes of FILE for whatever is asked, unthinking
"""

import asyncio
import sys
from pathlib import Path

from miles_sim.transport import ASGIApp, serve, settle

OUTPUT_TOKENS = 256


def engine_app() -> ASGIApp:
    """An engine whose replies never end before `OUTPUT_TOKENS`."""
    from miles_sim.engine.engine import Engine
    from miles_sim.engine.settings import EngineSettings
    from miles_sim.reply import Reply

    settings = EngineSettings(default_reply=Reply(tokens=2 * OUTPUT_TOKENS))
    return Engine(settings, seed=0).app


def bytes_app(body: bytes) -> ASGIApp:
    """The floor: the same stack and the same answer, without a thought."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def answer(request: Request) -> Response:
        await request.body()
        return Response(body, media_type="application/json")

    return Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])


async def host(app: ASGIApp) -> None:
    """Serve on a free port of the loopback until the standard input ends."""
    async with serve(app) as url:
        settle()  # as `miles-sim serve` does
        print("ready", url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


def main(arguments: list[str]) -> None:
    """`engine`, or `bytes FILE`."""
    app = engine_app() if arguments[0] == "engine" else bytes_app(Path(arguments[1]).read_bytes())
    asyncio.run(host(app))


if __name__ == "__main__":
    main(sys.argv[1:])
