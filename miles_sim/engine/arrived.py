"""What of a request reached the engine: a router on the way may have dropped some of it."""

from pydantic import BaseModel


def arrived(request: BaseModel) -> tuple[str, ...]:
    """Fields that the request came with a value for, sorted; those that its release does not read are not there."""
    return tuple(sorted(field for field in request.model_fields_set if getattr(request, field) is not None))
