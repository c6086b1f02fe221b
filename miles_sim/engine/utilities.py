"""Endpoints beside generation that need no model: tokenizer, parsers, knobs without an effect here (http_server.py,
serving_tokenize.py)."""

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import model_validator
from starlette.requests import Request
from starlette.responses import Response

from miles_sim.engine import reasoning
from miles_sim.engine.answers import answer, plain
from miles_sim.engine.body import ControlBody, Handler, read_body
from miles_sim.engine.errors import CrashError, NotModelledError, RequestError, validation_error
from miles_sim.engine.formats import FORMATS, JSON_ARRAY, dialect
from miles_sim.engine.prompt import prompt_of
from miles_sim.engine.request import ChatRequest, Lax, Tool, check, json_body, read
from miles_sim.engine.tool_calls import parse

if TYPE_CHECKING:
    from miles_sim.engine.engine import Engine

MODEL_MAX_LENGTH = 1 << 20
"""Of the tokenizer, as its saved configuration says."""
_NO_ADMIN_KEY = (
    "This endpoint requires admin API key, but this server was started without one (admin-api-key). Restart with "
    "--admin-api-key to enable."
)
M = TypeVar("M", bound=Lax)


class Tokenize(Lax):
    """Of a prompt, or (from 0.5.13) of a conversation."""

    prompt: str | list[str] | None = None
    messages: list[dict[str, Any]] | None = None
    add_generation_prompt: bool | None = None

    @model_validator(mode="after")
    def _one(self) -> "Tokenize":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("Exactly one of 'prompt' or 'messages' must be provided.")
        return self


class TokenizePrompt(Lax):
    prompt: str | list[str]


class Detokenize(Lax):
    tokens: list[int] | list[list[int]]
    skip_special_tokens: bool = True


class ParseCalls(ControlBody):
    text: str
    tools: list[Tool] = []
    tool_call_parser: str | None = None


class SeparateReasoning(ControlBody):
    text: str
    reasoning_parser: str
    return_blocks: bool = False


class SlowDown(ControlBody):
    forward_sleep_time: float | None


class Utilities:
    """The handlers."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._dialect = dialect(engine.profile.sglang)

    def handlers(self) -> dict[str, Handler]:
        """Handlers by path, for all releases."""
        return {
            "/tokenize": self.tokenize,
            "/v1/tokenize": self.tokenize,
            "/detokenize": self.detokenize,
            "/v1/detokenize": self.detokenize,
            "/parse_function_call": self.parse_calls,
            "/separate_reasoning": self.separate_reasoning,
            "/freeze_gc": self.freeze_gc,
            "/configure_logging": self.configure_logging,
            "/slow_down": self.slow_down,
            "/set_trace_level": self.set_trace_level,
            "/hicache/storage-backend": self.storage_backend,
            "/remote_instance_transfer_engine_info": self.transfer_engine,
            "/get_remote_instance_transfer_engine_info": self.transfer_engine,
            "/parallelism_config": self.parallelism,
        }

    async def tokenize(self, request: Request) -> Response:
        document = await self._json(request)
        if not self._engine.release.tokenizes_messages:
            return self._tokenized(read(TokenizePrompt, document, None).prompt)
        asked = read(Tokenize, document, None)
        if asked.add_generation_prompt is not None:
            raise NotModelledError("add_generation_prompt", asked.add_generation_prompt, "null")
        if asked.prompt is not None:
            return self._tokenized(asked.prompt)
        return _counted(self._rendered({key: value for key, value in document.items() if value is not None}))

    def _rendered(self, document: dict[str, Any]) -> list[int]:
        """Ids of a conversation, as for a chat completion."""
        shape = self._engine.profile.chat
        chat = read(ChatRequest, document, shape.known)
        check(chat)
        return list(prompt_of(chat, self._engine.tokenizer, bad_arguments=shape.bad_arguments).ids)

    def _tokenized(self, prompt: str | list[str]) -> Response:
        encode = self._engine.tokenizer.encode
        return _counted(encode(prompt)) if isinstance(prompt, str) else _counted([encode(text) for text in prompt])

    async def detokenize(self, request: Request) -> Response:
        asked = read(Detokenize, await self._json(request), None)
        if not asked.tokens:
            return answer({"text": ""})
        if isinstance(asked.tokens[0], int):
            return answer({"text": self._decoded(asked.tokens, asked)})
        return answer({"text": [self._decoded(ids, asked) for ids in asked.tokens]})

    def _decoded(self, ids: Any, asked: Detokenize) -> str:
        """Ids outside of the vocabulary are no text, as with a Hugging Face tokenizer."""
        tokenizer = self._engine.tokenizer
        if any(not 0 <= token < 1 << 32 for token in ids):
            fault = "Internal server error during detokenization: out of range integral type conversion attempted"
            raise RequestError(fault, kind="InternalServerError", status=500)
        known = [token for token in ids if token < tokenizer.vocab_size]
        return tokenizer.decode(known, skip_special_tokens=asked.skip_special_tokens)

    async def parse_calls(self, request: Request) -> Response:
        asked = read_body(ParseCalls, await request.body())
        parser = asked.tool_call_parser
        if parser is None:
            raise CrashError("tool_call_parser: none was named")
        if parser not in FORMATS or parser == JSON_ARRAY:
            raise NotModelledError("tool_call_parser", parser, ", ".join(sorted(FORMATS.keys() - {JSON_ARRAY})))
        tools = [tool.model_dump() for tool in asked.tools]
        found = parse(
            asked.text, {"type": "stop"}, tools, self._engine.profile.chat, parser=parser, dialect=self._dialect
        )
        calls = [{"tool_index": c.tool, "name": c.name, "parameters": c.arguments} for c in found.calls or ()]
        return answer({"normal_text": found.text if tools else asked.text, "calls": calls if tools else []})

    async def separate_reasoning(self, request: Request) -> Response:
        asked = read_body(SeparateReasoning, await request.body())
        if asked.reasoning_parser not in reasoning.PARSERS:
            raise NotModelledError("reasoning_parser", asked.reasoning_parser, ", ".join(reasoning.PARSERS))
        if asked.return_blocks and self._engine.release.reasoning_blocks:
            raise NotModelledError("return_blocks", True, "false")
        found = reasoning.parse(asked.text, asked.reasoning_parser, self._dialect)
        return answer({"reasoning_text": found.reasoning, "text": found.text})

    async def freeze_gc(self, request: Request) -> Response:
        return plain("Garbage collection frozen.\n")

    async def configure_logging(self, request: Request) -> Response:
        read_body(ControlBody, await request.body())
        return Response()

    async def slow_down(self, request: Request) -> Response:
        pause = read_body(SlowDown, await request.body()).forward_sleep_time
        if pause:
            raise NotModelledError("forward_sleep_time", pause, "null, or latency of the engine's settings")
        return answer(None)

    async def set_trace_level(self, request: Request) -> Response:
        _whole(request.query_params.get("level"), "level", least=0)
        return plain("success")

    async def storage_backend(self, request: Request) -> Response:
        """A simulated engine is not started with an administrator's key."""
        return answer({"error": _NO_ADMIN_KEY}, 400)

    async def transfer_engine(self, request: Request) -> Response:
        """An engine that no other one loads its weights from has none."""
        rank = _rank(request)
        if rank is None:
            return _no_rank()
        return answer({"error": {"message": f"Failed to get transfer engine info for rank {rank}"}}, 400)

    async def parallelism(self, request: Request) -> Response:
        """The fork's, of an engine that nobody sends weights to by address."""
        return _no_rank() if _rank(request) is None else plain("", 400)

    async def _json(self, request: Request) -> Any:
        document = json_body(await request.body(), content_type=request.headers.get("content-type", ""))
        return document if isinstance(document, dict) else read(Lax, document, None)


def _counted(tokens: list[Any]) -> Response:
    several = bool(tokens) and isinstance(tokens[0], list)
    count = [len(ids) for ids in tokens] if several else len(tokens)
    return answer({"tokens": tokens, "count": count, "max_model_len": MODEL_MAX_LENGTH})


def _rank(request: Request) -> int | None:
    given = request.query_params.get("rank")
    rank = None if given is None else _whole(given, "rank")
    return rank if rank is not None and rank >= 0 else None


def _no_rank() -> Response:
    return answer({"error": {"message": "Missing or invalid rank parameter"}}, 400)


def _whole(given: str | None, name: str, *, least: int | None = None) -> int:
    """A whole number from the query; `RequestError` in FastAPI's words."""
    fault: dict[str, Any] = {"loc": ("query", name), "input": given}
    if given is None:
        raise validation_error([{"type": "missing", "msg": "Field required", **fault}])
    try:
        number = int(given)
    except ValueError:
        message = "Input should be a valid integer, unable to parse string as an integer"
        raise validation_error([{"type": "int_parsing", "msg": message, **fault}]) from None
    if least is not None and number < least:
        message = f"Input should be greater than or equal to {least}"
        raise validation_error([{"type": "greater_than_equal", "msg": message, **fault, "ctx": {"ge": least}}])
    return number
