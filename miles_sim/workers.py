"""Worker processes that Ctrl-C does not reach: it is for their parent to act on."""

import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Workers(ProcessPoolExecutor):
    """`count` processes, each of which begins by `begin(*arguments)`.

    A process is started with a task that finds none idle, and inherits which signals its parent holds back then: so it
    is deaf to Ctrl-C from its first import on.
    """

    def __init__(self, count: int, begin: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        context = multiprocessing.get_context("spawn")
        super().__init__(count, mp_context=context, initializer=begin, initargs=arguments)

    def submit(self, function: Callable[..., T], /, *arguments: Any, **named: Any) -> "Future[T]":
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(function, *arguments, **named)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
