"""A campaign's folder: what was asked, and a line a scenario that is done. A killed campaign goes on from here."""

from collections.abc import Iterator
from pathlib import Path
from typing import IO

import orjson

from miles_sim.campaign.settings import CampaignError, CampaignSettings
from miles_sim.campaign.unit import Unit
from miles_sim.document import DocumentError, read


class Store:
    """Takes units in the order of their numbers; a context manager.

    Opened on a folder that holds a campaign of the same settings, it goes on behind its last whole line: no scenario
    twice, none lost. CampaignError where the folder holds another campaign, or something else.
    """

    def __init__(self, folder: Path, settings: CampaignSettings) -> None:
        self.folder = folder
        self.settings = settings
        self._units = folder / "units.jsonl"
        self._file: IO[bytes] | None = None
        self.done = 0
        """Units that are in it: those of the numbers below."""

    def __enter__(self) -> "Store":
        self.folder.mkdir(parents=True, exist_ok=True)
        self._same()
        self.done = self._whole()
        self._file = self._units.open("ab")
        return self

    def __exit__(self, *raised: object) -> None:
        if self._file is not None:
            self._file.close()

    def append(self, unit: Unit) -> None:
        """The next unit; it is on its way to the disk when this returns."""
        if self._file is None:
            raise CampaignError(f"{self.folder}: the store is not open")
        if unit.number != self.done:
            raise CampaignError(f"{self.folder}: unit {unit.number} is given where {self.done} is due")
        self._file.write(orjson.dumps(unit.model_dump()) + b"\n")
        self._file.flush()
        self.done += 1

    def units(self) -> Iterator[Unit]:
        """All units so far, in order, one in memory at a time."""
        with self._units.open("rb") as lines:
            for number, line in enumerate(lines):
                yield _unit(self._units, number, line)

    def _same(self) -> None:
        file = self.folder / "campaign.json"
        wanted = orjson.dumps(self.settings.model_dump(), option=orjson.OPT_INDENT_2) + b"\n"
        if not file.exists():
            if any(self.folder.iterdir()):
                raise CampaignError(f"out: {self.folder} is not empty, and holds no campaign")
            file.write_bytes(wanted)
        elif (held := file.read_bytes()) != wanted:
            raise CampaignError(f"out: {self.folder} holds another campaign: {_difference(held, wanted)}")

    def _whole(self) -> int:
        """Number of whole lines; what a kill left of one more is cut off."""
        whole = count = 0
        self._units.touch()
        with self._units.open("rb+") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                _unit(self._units, count, line)
                whole, count = whole + len(line), count + 1
            lines.truncate(whole)
        return count


def _unit(file: Path, number: int, line: bytes) -> Unit:
    name = f"{file}: line {number + 1}"
    try:
        unit = read(Unit, orjson.loads(line), name=name)
    except (orjson.JSONDecodeError, DocumentError) as error:
        raise CampaignError(f"{name}: {error}") from None
    if unit.number != number:
        raise CampaignError(f"{name}: holds unit {unit.number}, {number} is due")
    return unit


def _difference(held: bytes, wanted: bytes) -> str:
    try:
        old, new = orjson.loads(held), orjson.loads(wanted)
        return ", ".join(f"{key} {old.get(key)!r}, not {new[key]!r}" for key in new if old.get(key) != new[key])
    except (orjson.JSONDecodeError, AttributeError):
        return "campaign.json cannot be read"
