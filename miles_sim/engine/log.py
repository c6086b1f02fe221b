"""What an engine remembers of its past: all of it, the end of it, or lines in a file."""

from collections import OrderedDict
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from miles_sim.engine.flight import Answered, Asked
from miles_sim.engine.packed import tuple_of
from miles_sim.engine.prompt import Prompt
from miles_sim.engine.settings import LedgerSettings
from miles_sim.ledger import Generation


class GenerationLog:
    """The generations, in the order in which they were done."""

    def __init__(self, settings: LedgerSettings) -> None:
        self._read: list[Generation] = []
        """Entries that were looked at, and all before them."""
        self._unread: list[tuple[Asked, bytes, tuple[Any, ...]]] = []
        """Those after them, from which entries are made when somebody looks: their output ids packed, for most of
        what a request costs is the memory that it leaves behind."""
        self._prompts: dict[bytes, Prompt] = {}
        self._keep = settings.keep
        self._path = Path(settings.spool) if settings.spool is not None else None
        self._file: TextIOWrapper | None = None

    @property
    def generations(self) -> list[Generation]:
        """All, or with a bound at least the last so many and at most twice that."""
        self._read += [Answered(asked, tuple_of(packed), *rest).generation for asked, packed, rest in self._unread]
        self._unread.clear()
        return self._read

    def known(self, question: bytes, prompt: Prompt) -> Prompt:
        """The prompt as it came with that question first: where all are kept, equal ones are kept once."""
        return self._prompts.setdefault(question, prompt) if self._keep is None else prompt

    def append(self, answered: Answered, packed: bytes) -> None:
        """`packed`: its output ids."""
        if self._path is not None:
            if self._file is None:
                self._file = self._path.open("a", encoding="utf-8", buffering=1)
            self._file.write(answered.generation.model_dump_json() + "\n")
        self._unread.append((answered.asked, packed, answered[2:]))
        if self._keep is not None and len(self._read) + len(self._unread) > 2 * self._keep:
            self._forget(len(self._read) + len(self._unread) - self._keep)

    def _forget(self, count: int) -> None:
        """The oldest so many."""
        read = min(count, len(self._read))
        del self._read[:read]
        del self._unread[: count - read]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Attempts:
    """How often each question was asked before."""

    def __init__(self, limit: int | None) -> None:
        """`limit`: questions that are remembered; the one asked least recently is forgotten first. None: all."""
        self._limit = limit
        self._asked: OrderedDict[bytes, int] = OrderedDict()

    def next(self, question: bytes) -> int:
        """Counts it: 0 the first time."""
        attempt = self._asked.get(question, 0)
        self._asked[question] = attempt + 1
        if self._limit is not None:
            self._asked.move_to_end(question)
            if len(self._asked) > self._limit:
                self._asked.popitem(last=False)
        return attempt
