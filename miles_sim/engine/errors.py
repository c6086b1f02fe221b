"""What an engine refuses, and the bodies it refuses with."""

from typing import Any


class RequestError(ValueError):
    """A request that is answered with SGLang's error object.

    `kind` is the object's `type`: `BadRequestError` from the generation path, `BadRequest` from the conversion of
    the request, `Bad Request` from its validation (sglang serving_base.py, http_server.py).
    """

    def __init__(self, message: str, *, kind: str = "BadRequestError", status: int = 400, param: str | None = None):
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {
            "object": "error",
            "message": message,
            "type": kind,
            "param": param,
            "code": status,
        }


class BareError(RequestError):
    """A 400 whose `error` is a string, as SGLang's own schema of a request answers."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.body = {"error": message}


class CrashError(RequestError):
    """A request that the release falls over: it answers a 500 of its own making. The message says what it tripped on.

    Without a `body` to tell, the answer is the bare text of the web framework.
    """

    def __init__(self, message: str, *, told: bool = False) -> None:
        super().__init__(f"Internal server error: {message}", kind="InternalServerError", status=500)
        if not told:
            self.body = {}


class NotModelledError(RequestError):
    """A request that a real engine serves and this one does not: 501, the field by name, never an empty answer."""

    def __init__(self, field: str, value: Any, allowed: str):
        text = repr(value)
        shown = text if len(text) <= 80 else text[:77] + "..."
        message = f"{field}: {shown} is not modelled by this simulated engine (allowed: {allowed})"
        super().__init__(message, kind="NotModelled", status=501, param=field)


def validation_error(faults: list[dict[str, Any]]) -> RequestError:
    """A body that does not fit, in the words that FastAPI gives SGLang's handler: faults one a line, then as a list."""
    lines = "".join(f"  {fault}\n" for fault in faults)
    text = f"{len(faults)} validation error{'' if len(faults) == 1 else 's'}:\n{lines}".rstrip()
    return RequestError(f"{text} {faults}", kind="Bad Request")
