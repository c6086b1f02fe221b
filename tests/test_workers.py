"""Worker processes and Ctrl-C."""

import os
import signal

from miles_sim.workers import Workers


def test_a_worker_goes_on_when_the_whole_group_is_interrupted() -> None:
    with Workers(1, os.getpid, ()) as workers:
        first = workers.submit(os.getpid).result()
        workers.submit(signal.raise_signal, signal.SIGINT).result()
        assert workers.submit(os.getpid).result() == first != os.getpid()


def test_the_parent_can_be_interrupted_as_before() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    with Workers(1, os.getpid, ()) as workers:
        workers.submit(os.getpid).result()
        assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == before
