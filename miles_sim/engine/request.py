"""A chat request as SGLang reads it: lax types, unknown fields passed over, and by name what is not modelled."""

import json
from array import array
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from miles_sim.engine.errors import CrashError, NotModelledError, RequestError, validation_error
from miles_sim.engine.response_format import ResponseFormat, check_format
from miles_sim.engine.tool_schema import check_tools


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


class Lax(BaseModel):
    """A model of SGLang's: types are coerced, unknown keys passed over."""

    model_config = ConfigDict(extra="ignore")


class Part(Lax):
    """One part of a message whose content is a list."""

    type: str
    text: str | None = None


class CalledFunction(Lax):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class Call(Lax):
    """A tool call in the history."""

    id: str | None = None
    index: int | None = None
    type: Literal["function"] = "function"
    function: CalledFunction


class GenericMessage(Lax):
    role: Annotated[Literal["system", "assistant", "tool", "function", "developer"], BeforeValidator(_lower)]
    content: str | list[Part] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Call] | None = None


class UserMessage(Lax):
    role: Literal["user"]
    content: str | list[Part]


ChatMessage = GenericMessage | UserMessage


class Function(Lax):
    description: str | None = None
    name: str
    parameters: Any = None
    strict: bool = False


class Tool(Lax):
    """A tool definition; dumped with its defaults, as the release hands it to the template."""

    type: str = "function"
    function: Function


class NamedFunction(Lax):
    name: str | None = None


class NamedChoice(Lax):
    function: NamedFunction
    type: Literal["function"] = "function"


class StreamOptions(Lax):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class GenerationRequest(Lax):
    """What chat and completions share."""

    model: str = "default"
    n: int = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    lora_path: str | None = None
    extra_key: str | None = None
    cache_salt: str | None = None
    return_token_ids: bool = False
    return_cached_tokens_details: bool = False
    return_spec_tokens_details: bool = False
    return_input_ids_in_sglext: bool = False
    return_output_ids_in_sglext: bool = False
    return_routed_experts: bool = False
    routed_experts_start_len: int = 0
    return_hidden_states: bool | str = False

    ignore_eos: bool = False
    min_tokens: int = 0
    regex: str | None = None
    ebnf: str | None = None
    stop_regex: str | list[str] | None = None
    response_format: ResponseFormat | None = None
    logit_bias: dict[str, float] | None = None

    @property
    def adapter(self) -> str | None:
        """The LoRA adapter, which may stand behind a colon in the model's name (serving_base.py)."""
        return self.model.partition(":")[2].strip() or self.lora_path

    @property
    def cache_key(self) -> str | None:
        """Requests with different ones share no prefix in the cache."""
        return f"{self.cache_salt or ''}{self.extra_key or ''}" or None


class ChatRequest(GenerationRequest):
    """The fields of SGLang's `ChatCompletionRequest` that decide an answer here (protocol.py)."""

    messages: list[ChatMessage]
    input_ids: list[int] | None = None
    """An array, where `parse` found them plain."""
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
    top_logprobs: int | None = None
    return_meta_info: bool = False
    return_prompt_token_ids: bool = False
    separate_reasoning: bool = True
    stream_reasoning: bool = True

    session_params: dict[str, Any] | None = None
    custom_logit_processor: Any = None
    continue_final_message: bool = False

    @property
    def parses_tools(self) -> bool:
        """The reply is searched for tool calls."""
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def must_call(self) -> bool:
        """The reply has to be a tool call."""
        return self.tool_choice == "required" or isinstance(self.tool_choice, NamedChoice)

    @property
    def offered(self) -> list[dict[str, Any]]:
        """Tools that the model is shown: of a named one that alone."""
        choice = self.tool_choice
        named = choice.function.name if isinstance(choice, NamedChoice) else None
        return [tool.model_dump() for tool in self.tools or () if named is None or tool.function.name == named]


@dataclass(frozen=True)
class _Unmodelled:
    field: str
    allowed: str
    neutral: tuple[Any, ...]


_UNMODELLED = (
    _Unmodelled("session_params", "null", (None,)),
    _Unmodelled("custom_logit_processor", "null", (None,)),
    _Unmodelled("continue_final_message", "false", (False,)),
)


R = TypeVar("R", bound=Lax)


def parse(body: bytes, *, content_type: str, fields: Collection[str] | None = None) -> ChatRequest:
    """The chat request in `body`, of these fields alone; `RequestError` in SGLang's words where it is none, and
    `NotModelledError` for a field that the release acts on and the engine does not."""
    return parse_document(json_body(body, content_type=content_type), fields)


def parse_document(document: Any, fields: Collection[str] | None) -> ChatRequest:
    """As `parse`."""
    request = _with_plain_ids(document, fields) or read(ChatRequest, document, fields)
    if fields is not None:
        refuse_unmodelled(document, request, fields)
    return request


def _with_plain_ids(document: Any, fields: Collection[str] | None) -> ChatRequest | None:
    """A request whose `input_ids`, most of it, are checked all in one, which gives an array of them. None where that
    will not do, or another field is wrong: the model sees to it that each is named as it came."""
    ids = document.get("input_ids") if isinstance(document, dict) else None
    if not isinstance(ids, list) or (fields is not None and "input_ids" not in fields):
        return None
    try:
        plain = array("I", ids)
        request = read(ChatRequest, {**document, "input_ids": None}, fields)
    except (TypeError, OverflowError, RequestError):
        return None
    request.input_ids = plain  # type: ignore[assignment]
    return request


def json_body(body: bytes, *, content_type: str) -> Any:
    """The JSON of a body that says it is JSON."""
    check_json(content_type)
    return json_document(body)


def check_json(content_type: str) -> None:
    """`RequestError` for a body that does not say it is JSON."""
    if content_type.lower().split(";", 1)[0] != "application/json":
        message = "Unsupported Media Type: Only 'application/json' is allowed"
        raise validation_error([{"loc": ["header", "content-type"], "msg": message, "type": "value_error"}])


def native_body(body: bytes, *, content_type: str | None) -> Any:
    """The JSON of a body to an endpoint that leaves its type to FastAPI: what says it is something else is none."""
    kind = (content_type or "application/json").lower().split(";", 1)[0].strip()
    if kind == "application/json" or kind.endswith("+json") or not body:
        return json_document(body)
    given = body.decode(errors="replace")
    message = "Input should be a dictionary or an instance of GenerateReqInput"
    raise validation_error([{"type": "dataclass_type", "loc": ("body",), "msg": message, "input": given}])


def read(model: type[R], document: Any, fields: Collection[str] | None) -> R:
    """`document`, less the fields that are not among `fields`; `RequestError` with FastAPI's list of faults."""
    if isinstance(document, Mapping) and fields is not None:
        document = {key: value for key, value in document.items() if key in fields}
    try:
        return model.model_validate(document)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors(include_url=False)]
        raise validation_error(faults) from None


_WITHOUT_EFFECT = frozenset(
    (
        "background",
        "best_of",
        "bootstrap_host",
        "bootstrap_pair_key",
        "bootstrap_port",
        "bootstrap_room",
        "conversation_id",
        "custom_labels",
        "custom_params",
        "data_parallel_rank",
        "decode_tp_size",
        "disagg_prefill_dp_rank",
        "encoder_urls",
        "external_trace_header",
        "http_worker_ipc",
        "image_max_dynamic_patch",
        "images_config",
        "log_metrics",
        "max_dynamic_patch",
        "min_dynamic_patch",
        "mm_content_hashes",
        "mm_hashes",
        "mm_processor_kwargs",
        "modalities",
        "need_wait_for_mm_inputs",
        "no_logs",
        "num_items_assigned",
        "parallel_tool_calls",
        "priority",
        "received_time",
        "require_reasoning",
        "return_bytes",
        "return_entropy",
        "routed_dp_rank",
        "routing_key",
        "session_id",
        "suffix",
        "task",
        "use_audio_in_video",
        "user",
        "validation_time",
        "video_config",
        "video_max_dynamic_patch",
    )
)
"""Fields of every release that change nothing in what a single server without images says."""


def refuse_unmodelled(document: Any, request: Lax, fields: Collection[str]) -> None:
    """`NotModelledError` for a field that the release acts on and the engine does not know at all."""
    modelled = type(request).model_fields
    for key, value in document.items():
        if key in modelled or key not in fields or key in _WITHOUT_EFFECT:
            continue
        if value is not None and value is not False and value != 0 and value not in ("", [], {}):
            raise NotModelledError(key, value, "null")


def json_document(body: bytes) -> Any:
    """The JSON of a body; `RequestError` in FastAPI's words where there is none."""
    if not body:
        raise validation_error([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return _python_document(body)


def _python_document(body: bytes) -> Any:
    """What only Python's parser takes (NaN), and its words for what nobody takes.

    It takes half of a pair of surrogates, too, which no tokenizer and no answer in UTF-8 can hold: `CrashError`.
    """
    try:
        document = json.loads(body)
        json.dumps(document, ensure_ascii=False).encode()
        return document
    except UnicodeEncodeError as error:
        raise CrashError(str(error)) from None
    except json.JSONDecodeError as error:
        fault = {"type": "json_invalid", "loc": ("body", error.pos), "msg": "JSON decode error"}
        raise validation_error([fault | {"input": {}, "ctx": {"error": error.msg}}]) from None
    except (UnicodeDecodeError, RecursionError):  # no parser's error: FastAPI has one answer for all of these
        raise RequestError("There was an error parsing the body", kind="400") from None


def check(
    request: ChatRequest,
    *,
    stream_refuses: tuple[str, ...] = (),
    tool_aliases: bool = False,
    context: int | None = None,
) -> None:
    """Refuse what SGLang refuses before it renders the prompt (serving_chat.py), then what is not modelled.

    `tool_aliases`: see `check_tools`; `context`: most output ids that may be asked for.
    """
    if not request.messages:
        raise RequestError("Messages cannot be empty.")
    _check_tool_choice(request)
    check_tools(request.tools or (), aliases=tool_aliases)
    most = request.max_completion_tokens or request.max_tokens
    if most and context and most > context:
        raise RequestError(
            f"max_completion_tokens is too large: {most}.This model supports at most {context} completion tokens."
        )
    check_format(request.response_format)
    if request.stream:
        for field in stream_refuses:
            if getattr(request, field):
                where = " on /v1/chat/completions" if field == "return_token_ids" else ""
                raise RequestError(
                    f"{field} is not supported with streaming{where}. Please set stream=false when using {field}=true.",
                    kind="BadRequest",
                )
    for entry in _UNMODELLED:
        value = getattr(request, entry.field)
        if value not in entry.neutral:
            raise NotModelledError(entry.field, value, entry.allowed)


def check_hidden_states(asked: Any, refusal: str) -> None:
    """SGLang's own refusal, for want of a server flag that no simulated engine has (tokenizer_manager.py)."""
    if any(asked) if isinstance(asked, list) else asked:
        raise RequestError(refusal)


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
