"""A chat request as SGLang reads it: lax types, unknown fields passed over, and by name what is not modelled."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from miles_sim.engine.errors import NotModelledError, RequestError, validation_error


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


class _Lax(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Part(_Lax):
    """One part of a message whose content is a list."""

    type: str
    text: str | None = None


class CalledFunction(_Lax):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class Call(_Lax):
    """A tool call in the history."""

    id: str | None = None
    index: int | None = None
    type: Literal["function"] = "function"
    function: CalledFunction


class GenericMessage(_Lax):
    role: Annotated[Literal["system", "assistant", "tool", "function", "developer"], BeforeValidator(_lower)]
    content: str | list[Part] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Call] | None = None


class UserMessage(_Lax):
    role: Literal["user"]
    content: str | list[Part]


ChatMessage = GenericMessage | UserMessage


class Function(_Lax):
    description: str | None = None
    name: str
    parameters: Any = None
    strict: bool = False


class Tool(_Lax):
    """A tool definition; dumped with its defaults, as the release hands it to the template."""

    type: str = "function"
    function: Function


class NamedFunction(_Lax):
    name: str | None = None


class NamedChoice(_Lax):
    function: NamedFunction
    type: Literal["function"] = "function"


class ChatRequest(_Lax):
    """The fields of SGLang's `ChatCompletionRequest` that decide an answer here (protocol.py)."""

    messages: list[ChatMessage]
    model: str = "default"
    input_ids: list[int] | None = None
    rid: str | None = None
    tools: list[Tool] | None = None
    tool_choice: NamedChoice | Literal["auto", "required", "none"] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: Any = None

    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float | None = None
    no_stop_trim: bool = False
    skip_special_tokens: bool = True

    logprobs: bool = False
    return_meta_info: bool = False
    return_prompt_token_ids: bool = False
    return_cached_tokens_details: bool = False
    return_hidden_states: bool = False

    n: int = 1
    stream: bool = False
    top_logprobs: int | None = None
    ignore_eos: bool = False
    min_tokens: int = 0
    regex: str | None = None
    ebnf: str | None = None
    stop_regex: str | list[str] | None = None
    response_format: dict[str, Any] | None = None
    logit_bias: dict[str, float] | None = None
    lora_path: Any = None
    session_params: dict[str, Any] | None = None
    custom_logit_processor: Any = None
    continue_final_message: bool = False
    return_routed_experts: bool = False

    @property
    def parses_tools(self) -> bool:
        """The reply is searched for tool calls."""
        return bool(self.tools) and self.tool_choice != "none"


@dataclass(frozen=True)
class _Unmodelled:
    field: str
    allowed: str
    neutral: tuple[Any, ...]


_UNMODELLED = (
    _Unmodelled("stream", "false", (False,)),
    _Unmodelled("n", "1", (1,)),
    _Unmodelled("top_logprobs", "0", (None, 0)),
    _Unmodelled("ignore_eos", "false", (False,)),
    _Unmodelled("min_tokens", "0", (0,)),
    _Unmodelled("regex", "null", (None,)),
    _Unmodelled("ebnf", "null", (None,)),
    _Unmodelled("stop_regex", "null", (None, [])),
    _Unmodelled("response_format", '{"type": "text"}', (None, {"type": "text"})),
    _Unmodelled("logit_bias", "null", (None, {})),
    _Unmodelled("lora_path", "null", (None,)),
    _Unmodelled("session_params", "null", (None,)),
    _Unmodelled("custom_logit_processor", "null", (None,)),
    _Unmodelled("continue_final_message", "false", (False,)),
    _Unmodelled("return_routed_experts", "false", (False,)),
)


def parse(body: bytes, *, content_type: str, fields: Collection[str] | None = None) -> ChatRequest:
    """The request in `body`, of these fields alone; `RequestError` in SGLang's words where it is none."""
    if content_type.lower().split(";", 1)[0] != "application/json":
        message = "Unsupported Media Type: Only 'application/json' is allowed"
        raise validation_error([{"loc": ["header", "content-type"], "msg": message, "type": "value_error"}])
    return _validated(json_document(body), fields)


def json_document(body: bytes) -> Any:
    """The JSON of a body; `RequestError` in FastAPI's words where there is none."""
    if not body:
        raise validation_error([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return _python_document(body)


def _python_document(body: bytes) -> Any:
    """What only Python's parser takes (NaN), and its words for what nobody takes."""
    try:
        return json.loads(body)
    except UnicodeDecodeError:
        raise validation_error([{"type": "json_invalid", "loc": ("body", 0), "msg": "JSON decode error"}]) from None
    except json.JSONDecodeError as error:
        fault = {"type": "json_invalid", "loc": ("body", error.pos), "msg": "JSON decode error"}
        raise validation_error([fault | {"input": {}, "ctx": {"error": error.msg}}]) from None


def _validated(document: Any, fields: Collection[str] | None) -> ChatRequest:
    if isinstance(document, Mapping) and fields is not None:
        document = {key: value for key, value in document.items() if key in fields}
    try:
        return ChatRequest.model_validate(document)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors(include_url=False)]
        raise validation_error(faults) from None


def check(request: ChatRequest, *, stream_refuses: tuple[str, ...] = ()) -> None:
    """Refuse what SGLang refuses before it renders the prompt (serving_chat.py), then what is not modelled."""
    if not request.messages:
        raise RequestError("Messages cannot be empty.")
    _check_tool_choice(request)
    if request.stream:
        for field in stream_refuses:
            if getattr(request, field):
                raise RequestError(
                    f"{field} is not supported with streaming. Please set stream=false when using {field}=true.",
                    kind="BadRequest",
                )
    for entry in _UNMODELLED:
        value = getattr(request, entry.field)
        if value not in entry.neutral:
            raise NotModelledError(entry.field, value, entry.allowed)


def check_hidden_states(request: ChatRequest) -> None:
    """SGLang's own refusal, for want of a server flag that no simulated engine has (tokenizer_manager.py)."""
    if request.return_hidden_states:
        raise RequestError(
            "The server is not configured to return the hidden states. Please set `--enable-return-hidden-states` "
            "to enable this feature."
        )


def _check_tool_choice(request: ChatRequest) -> None:
    choice = request.tool_choice
    if choice in (None, "auto", "none"):
        return
    if not request.tools:
        which = "required" if choice == "required" else "a specific tool"
        raise RequestError(f"Tools cannot be empty if tool choice is set to {which}.")
    if isinstance(choice, NamedChoice):
        name = choice.function.name
        if all(tool.function.name != name for tool in request.tools):
            raise RequestError(f"Tool '{name}' not found in tools list.")
        raise NotModelledError("tool_choice", choice.model_dump(), "auto, none")
    raise NotModelledError("tool_choice", choice, "auto, none")
