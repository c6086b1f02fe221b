"""How a command ends: exit codes, and which errors a person can act on."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

HOLDS, VIOLATED, IMPOSSIBLE, BROKEN, INTERRUPTED, UNREAD = 0, 1, 2, 3, 130, 141
"""Exit codes: all holds; a violation; asked for what cannot be; a fault of miles-sim itself; Ctrl-C; who reads the
output has closed it."""


@contextmanager
def honest() -> Iterator[None]:
    """Errors a person can act on become one line and exit 2, Ctrl-C becomes 130, output that nobody reads 141; all
    else is a fault of ours."""
    import typer

    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered goes nowhere
        raise typer.Exit(UNREAD) from None
    except Exception as error:
        if not isinstance(error, _ours()):
            raise
        typer.echo(f"miles-sim: {error}", err=True)
        raise typer.Exit(IMPOSSIBLE) from None


def _ours() -> tuple[type[Exception], ...]:
    from miles_sim.bench.load import BenchError
    from miles_sim.campaign.settings import CampaignError
    from miles_sim.cli.choices import Impossible
    from miles_sim.document import DocumentError
    from miles_sim.engine.fleet import FleetError
    from miles_sim.engine.profiles import ProfileError
    from miles_sim.faults.chaos import ChaosPlanError
    from miles_sim.rollout.errors import SettingsError
    from miles_sim.targets.base import TargetError
    from miles_sim.targets.catalog import UnknownTargetError
    from miles_sim.tokenizer import TokenizerError
    from miles_sim.verify.bisect import BisectError
    from miles_sim.verify.pack import PackError
    from miles_sim.verify.run import SelectionError
    from miles_sim.verify.search import SearchError

    return (
        BenchError,
        BisectError,
        CampaignError,
        ChaosPlanError,
        Impossible,
        DocumentError,
        FleetError,
        ProfileError,
        SettingsError,
        TargetError,
        TokenizerError,
        UnknownTargetError,
        PackError,
        SelectionError,
        SearchError,
        OSError,
    )
