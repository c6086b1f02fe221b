"""Several engines at once, as a router has them: equal settings and seed, each with what it alone has seen."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from miles_sim.engine.engine import Engine
from miles_sim.engine.settings import EngineSettings
from miles_sim.ledger import Generation
from miles_sim.transport import serve


class FleetError(ValueError):
    """So many engines on such ports there cannot be."""


class Fleet:
    """`count` engines that answer the same question with the same reply, under ids that never collide.

    Prefix cache, weights, queue and the count of attempts are each engine's own, so that a session that leaves its
    engine finds nothing cached, and a question that is asked again elsewhere gets the first answer once more.
    """

    def __init__(self, settings: EngineSettings, count: int, *, seed: int) -> None:
        if count < 1:
            raise FleetError(f"engines: {count} is not at least 1")
        self.engines = tuple(Engine(settings, seed=seed, number=number) for number in range(count))

    @property
    def generations(self) -> list[Generation]:
        """What all of them generated, engine by engine."""
        return [generation for engine in self.engines for generation in engine.generations]

    @asynccontextmanager
    async def served(self, *, host: str = "127.0.0.1", ports: Sequence[int] = ()) -> AsyncIterator[tuple[str, ...]]:
        """Each over a socket; gives their URLs in the order of the engines. `ports`: see `ports_of`.

        `ListenError` where one of the ports cannot be had; the others are given back. All end together.
        """
        chosen = ports_of(ports, len(self.engines))
        async with AsyncExitStack() as stack:
            yield tuple(
                [
                    await stack.enter_async_context(serve(engine.app, host=host, port=port))
                    for engine, port in zip(self.engines, chosen, strict=True)
                ]
            )
        for engine in self.engines:
            engine.close()


def ports_of(given: Sequence[int], count: int) -> tuple[int, ...]:
    """A port for each of `count` engines.

    `given`: one for each; or the first, which the others follow; or 0, or none at all: any free ones.
    `FleetError` for another number of them, for one that is named twice, and past 65535.
    """
    if len(given) == count:
        ports = tuple(given)
    elif not given or tuple(given) == (0,):
        ports = (0,) * count
    elif len(given) == 1:
        ports = tuple(range(given[0], given[0] + count))
    else:
        raise FleetError(f"ports: {len(given)} ports for {count} engines; one, or one for each, is due")
    named = [port for port in ports if port]
    if len(set(named)) < len(named):
        raise FleetError(f"ports: {', '.join(map(str, ports))}: each can be had once")
    if max(ports) > 65_535:
        raise FleetError(f"ports: {ports[0]} to {ports[-1]}: the last one is past 65535")
    return ports
