"""What the client gets."""

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

from miles_sim.rollout.errors import UpstreamResponseError
from miles_sim.rollout.session.headers import to_client
from miles_sim.rollout.session.upstream import Answer

_REPLAY = ("routed_experts", "indexer_topk")
"""Large, and for the trainer alone: kept in the record."""


class _JsonResponse(Response):
    """Starlette's, of which it is known before what its headers are."""

    def __init__(self, body: bytes, status_code: int) -> None:
        self.status_code = status_code
        self.background = None
        self.body = body
        self.raw_headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]


def json_response(content: Any, *, status_code: int = 200) -> Response:
    """`content` as JSON; `TypeError` for what JSON cannot hold."""
    return _JsonResponse(orjson.dumps(content), status_code)


def check_not_elsewhere(answer: Answer) -> Answer:
    """The answer; UpstreamResponseError for a redirect: who followed it would go round the session."""
    if 300 <= answer.status_code < 400:
        raise UpstreamResponseError(f"engine: status {answer.status_code}: redirects are not followed")
    return answer


def passed_through(answer: Answer) -> Response:
    """The engine's answer as it came."""
    response = Response(answer.body, status_code=answer.status_code)
    _add(response, answer, without=())
    return response


def completed(answer: Answer, reply: Mapping[str, Any], *, stream: bool) -> Response:
    """A recorded reply: a JSON body, or a stream of one chunk."""
    if stream:
        events = b"data: " + orjson.dumps(_chunk(reply)) + b"\n\ndata: [DONE]\n\n"
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        return Response(events, headers=headers, media_type="text/event-stream")
    response = json_response(_without_replay(reply))
    _add(response, answer, without=("content-type",))
    return response


def _add(response: Response, answer: Answer, *, without: tuple[str, ...]) -> None:
    response.raw_headers += [
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in to_client(answer.headers)
        if name not in without
    ]


def _without_replay(reply: Mapping[str, Any]) -> dict[str, Any]:
    shown = {**reply, "choices": [_stripped(choice, "meta_info") for choice in reply["choices"]]}
    return _stripped(shown, "sglext")


def _stripped(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    inner = holder.get(name)
    if not isinstance(inner, dict):
        return dict(holder)
    return {**holder, name: {key: value for key, value in inner.items() if key not in _REPLAY}}


def _chunk(reply: Mapping[str, Any]) -> dict[str, Any]:
    """The whole reply as one `chat.completion.chunk`. Deltas concatenate, so one is enough."""
    choice = reply["choices"][0]
    message = choice["message"]
    delta = {"role": "assistant", "content": message.get("content")}
    if message.get("reasoning_content") is not None:
        delta["reasoning_content"] = message["reasoning_content"]
    if message.get("tool_calls"):
        delta["tool_calls"] = [{**call, "index": i} for i, call in enumerate(message["tool_calls"])]
    chunk = {
        "id": reply["id"],
        "object": "chat.completion.chunk",
        "created": reply.get("created"),
        "model": reply.get("model"),
        "choices": [{"index": 0, "delta": delta, "finish_reason": choice["finish_reason"]}],
    }
    return chunk if reply.get("usage") is None else {**chunk, "usage": reply["usage"]}
