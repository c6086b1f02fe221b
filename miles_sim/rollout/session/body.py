"""The body of a request, as long as it may be."""

from starlette.requests import ClientDisconnect, Request

from miles_sim.rollout.errors import BodyTooLargeError, ClientGoneError


async def read_body(request: Request, *, limit: int) -> bytes:
    """BodyTooLargeError as soon as `limit` bytes are known to be exceeded: what follows is not read."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(declared, limit)
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise _too_large(f"{size} or more", limit)
            parts.append(part)
    except ClientDisconnect:
        raise ClientGoneError("client: left before its request was whole") from None
    return b"".join(parts)


def _too_large(size: str, limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"body: {size} bytes, of max_body_bytes={limit} at most")
