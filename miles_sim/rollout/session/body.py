"""The body of a request, as long as it may be."""

from starlette.requests import Request

from miles_sim.rollout.errors import BodyTooLargeError, ClientGoneError


async def read_body(request: Request, *, limit: int) -> bytes:
    """BodyTooLargeError as soon as `limit` bytes are known to be exceeded: what follows is not read."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(declared, limit)
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError("client: left before its request was whole")
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size > limit:
            raise _too_large(f"{size} or more", limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(size: str, limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"body: {size} bytes, of max_body_bytes={limit} at most")
