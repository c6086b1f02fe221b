"""The body of a request to the control plane, read as FastAPI reads it for SGLang."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from miles_sim.engine.errors import validation_error
from miles_sim.engine.request import json_document

Handler = Callable[[Request], Awaitable[Response]]


class ControlBody(BaseModel):
    """A body of the control plane: types are lax, unknown keys are passed over."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())


B = TypeVar("B", bound=ControlBody)


def read_body(model: type[B], body: bytes) -> B:
    """`RequestError` (400) with FastAPI's list of faults where the body is missing, no JSON, or does not fit."""
    try:
        return model.model_validate(json_document(body))
    except ValidationError as error:
        faults: list[dict[str, Any]] = [
            {**fault, "loc": ("body", *fault["loc"])} for fault in error.errors(include_url=False)
        ]
        raise validation_error(faults) from None
