"""The base of all documents (scenario, ledger, observation): strict, frozen, with errors a person can act on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError


class DocumentError(ValueError):
    """A document that does not fit its model. The message names place, value and what is allowed, one line a fault."""


class Document(BaseModel):
    """Unknown keys are refused, values are not coerced across kinds, instances do not change."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        validate_default=True,
        protected_namespaces=(),  # older pydantic warns of fields like `model_info`
    )


D = TypeVar("D", bound=Document)
Line = Callable[[Sequence[str | int]], int | None]
"""Line of a file on which a place of its document stands."""


def read(model: type[D], data: Any, *, name: str, line: Line | None = None) -> D:
    """`data` as a `model`; `name` (a file, a target) opens each line of the error, `line` tells where in the file."""
    if not isinstance(data, Mapping):
        raise DocumentError(f"{name}: expected a mapping, found {type(data).__name__}")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise DocumentError(explain(error, name=name, data=data, line=line)) from None


def explain(error: ValidationError, *, name: str, data: Any = None, line: Line | None = None) -> str:
    """One line a fault: `name: line 3: place: what is wrong (found …)`."""
    lines = []
    for fault in error.errors(include_url=False):
        loc = fault["loc"] if data is None else _walkable(fault["loc"], data)
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")
        number = None if line is None else line(loc)
        where = name if number is None else f"{name}: line {number}"
        whole = fault["type"] == "missing" or (fault["type"] == "value_error" and isinstance(fault["input"], Mapping))
        found = "" if whole else f" (found {_short(fault['input'])})"
        what = fault["msg"].removeprefix("Value error, ")
        lines.append(f"{where}: {place or 'document'}: {what[0].lower()}{what[1:]}{found}")
    return "\n".join(lines)


def _walkable(loc: tuple[str | int, ...], data: Any) -> tuple[str | int, ...]:
    """`loc` without the names that pydantic adds for a union's members, which stand nowhere in `data`."""
    kept: list[str | int] = []
    for last, part in ((i == len(loc) - 1, part) for i, part in enumerate(loc)):
        inside = (isinstance(data, Mapping) and part in data) or (
            isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)
        )
        if inside or last:
            kept.append(part)
        if inside:
            data = data[part]
    return tuple(kept)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
