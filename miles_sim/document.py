"""The base of all documents (scenario, ledger, observation): strict, frozen, with errors a person can act on."""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError


class DocumentError(ValueError):
    """A document that does not fit its model. The message names place, value and what is allowed, one line a fault."""


class Document(BaseModel):
    """Unknown keys are refused, values are not coerced across kinds, instances do not change."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True
    )


D = TypeVar("D", bound=Document)


def read(model: type[D], data: Any, *, name: str) -> D:
    """`data` as a `model`; `name` (a file, a target) opens each line of the error."""
    if not isinstance(data, Mapping):
        raise DocumentError(f"{name}: expected a mapping, found {type(data).__name__}")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise DocumentError(explain(error, name=name)) from None


def explain(error: ValidationError, *, name: str) -> str:
    """One line a fault: `name: place: what is wrong (found …)`."""
    lines = []
    for fault in error.errors(include_url=False):
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"]).lstrip(".")
        found = "" if fault["type"] == "missing" else f" (found {_short(fault['input'])})"
        lines.append(f"{name}: {place or 'document'}: {fault['msg'][0].lower()}{fault['msg'][1:]}{found}")
    return "\n".join(lines)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
