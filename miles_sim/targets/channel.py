"""A worker process and the lines to and from it, bound to no event loop: one worker serves many loops in turn."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO, Any

from miles_sim.targets.base import TargetError

Receiver = Callable[[dict[str, Any] | None], None]
"""Called from a thread with each message; None: there will be no more."""

_SHAPES: tuple[set[str], ...] = (
    {"ready"},
    {"ready", "error"},
    {"id", "value"},
    {"id", "error"},
    {"call", "id", "agent"},
    {"cancel", "id"},
)
"""Keys of the messages that `worker.py` sends."""
_KEPT_LINES = 12
_KEPT_WIDTH = 400


class Channel:
    """Starts `command` and exchanges JSON lines with it. `send` never blocks.

    The process leads a group of its own, so that a Ctrl-C in the terminal is its parent's to handle; it ends when
    its input is closed, and with its parent at the latest.
    """

    def __init__(self, command: Sequence[str], receiver: Receiver) -> None:
        self._receiver = receiver
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._said: deque[str] = deque(maxlen=_KEPT_LINES)
        self.nonsense: str | None = None
        """The line that was no message, if that is how the conversation ended."""
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise TargetError(f"{command[0]}: cannot be run: {error.strerror}") from None
        streams = (self._process.stdin, self._process.stdout, self._process.stderr)
        jobs = (self._write, self._read, self._drain)
        self._threads = [
            threading.Thread(target=job, args=(stream,), daemon=True, name=f"miles-sim-{job.__name__[1:]}")
            for job, stream in zip(jobs, streams, strict=True)
        ]

    def start(self) -> None:
        """Begin to exchange messages."""
        for thread in self._threads:
            thread.start()

    def send(self, message: dict[str, Any]) -> None:
        self._outgoing.put(json.dumps(message).encode() + b"\n")

    def last_words(self) -> str:
        """The last lines of the error stream; whole once the channel is closed."""
        return "".join(f"\n  | {line}" for line in self._said)

    def close(self, grace: float) -> None:
        """End the process: by closing its input, after `grace` seconds by force. Blocks; may be called twice."""
        self._outgoing.put(None)
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for thread in self._threads:
            thread.join(1)

    def _write(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(OSError), stream:  # gone: the reader says so
            while (line := self._outgoing.get()) is not None:
                stream.write(line)
                stream.flush()

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                message = _message(line)
                if message is None:
                    self.nonsense = line[:_KEPT_WIDTH].decode(errors="replace").rstrip()
                    break
                self._receiver(message)
        self._receiver(None)

    def _drain(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._said.append(line[:_KEPT_WIDTH].decode(errors="replace").rstrip())


def _message(line: bytes) -> dict[str, Any] | None:
    """The message of a line; None: it is none that the protocol knows."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    if not isinstance(message, dict) or message.keys() not in _SHAPES:
        return None
    return message
