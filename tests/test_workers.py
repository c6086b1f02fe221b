"""Worker processes and Ctrl-C."""

import os
import signal
import time

from miles_sim.workers import Workers


def _begin(seconds: float) -> None:
    time.sleep(seconds)


def _struck() -> int:
    os.kill(os.getpid(), signal.SIGINT)
    return os.getpid()


def test_a_worker_goes_on_when_the_whole_group_is_interrupted() -> None:
    with Workers(1, _begin, (0.0,)) as workers:
        first = workers.submit(_struck).result()
        assert workers.submit(_struck).result() == first != os.getpid()


def test_the_parent_can_be_interrupted_as_before() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    with Workers(1, _begin, (0.0,)) as workers:
        workers.submit(os.getpid).result()
        assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == before
