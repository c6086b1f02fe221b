"""Profiles: what each release of SGLang puts on the wire, as data from `fixtures/wire/`."""

from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Any, Literal

from pydantic import Field

from miles_sim.document import Document, DocumentError, read
from miles_sim.engine.overlay import OverlayError, overlay
from miles_sim.resources import FIXTURES
from miles_sim.yaml_file import YamlFile

WIRE = FIXTURES / "wire"

Condition = Literal[
    "finished",
    "sent",
    "metrics",
    "logprobs",
    "top_logprobs",
    "token_ids_logprobs",
    "speculative",
    "routed_experts",
    "indexer_topk",
    "decoded",
]
"""`finished`: the last, or only, answer. `sent`: the first piece of a stream, or the only answer. `metrics`: the
server counts (`enable_metrics`). `speculative`: finished, and speculative decoding ran at least one verify step.
`decoded`: time passed between the first id and the last. The others: asked for."""


class ProfileError(ValueError):
    """No such profile."""


class MetaKey(Document):
    """One key of `meta_info`."""

    key: str
    type: Literal["str", "int", "float", "list", "object", "int?", "object?"]
    """A type with `?` may be null."""
    when: tuple[Condition, ...] = ()
    """All of these hold; empty: always."""
    value: str | None = None
    """Name of the engine's own value, where it is not the key."""
    idle: bool = False
    """A `speculative` key that is sent as zero too where no verify step ran."""


class GenerateWire(Document):
    """`/generate` as the release reads and answers it."""

    fields: tuple[str, ...]
    """Request fields that the release knows; any other is passed over without a word."""
    body: tuple[str, ...]
    """Keys of an answer; `prompt_token_ids` only where asked for."""
    sampling_fields: tuple[str, ...]
    """Keys of `sampling_params` that the release knows."""
    unknown_sampling: Literal["crashes", "named"]
    """A key of `sampling_params` that it does not know: a bare 500, or a 400 that names it."""
    stream_error: Literal["message", "described"]
    """An error in a stream: `{"error": {"message"}}`, or with type, code and `retryable`."""
    incremental: tuple[Literal["text", "output_ids", "logprobs"], ...]
    """What a piece of a stream has only the new part of, under incremental streaming; the rest is cumulative."""
    default_input_logprobs: Literal["none", "last"]
    """`return_logprob` without `logprob_start_len`: no entry of the prompt, or one for its last id."""
    checks_token_ids_logprob: bool
    """Ids in `token_ids_logprob` outside the vocabulary are a 400."""

    @cached_property
    def known(self) -> frozenset[str]:
        """`fields`, to look one up in."""
        return frozenset(self.fields)


class ChatStream(Document):
    """`/v1/chat/completions` as a stream."""

    refuses: tuple[str, ...]
    """Request fields that are a 400 together with `stream`."""
    nulls: Literal["all", "reasoning"]
    """Keys that have no value: all of a piece's are sent as null, or of the delta's only `reasoning_content`.
    Pieces of tool calls have them all everywhere."""
    early_error: Literal["sse", "json"]
    """An error before the first piece: inside a stream under 200, or the status and body it has without a stream."""
    aborted: Literal["finish", "cut"]
    """A running request that is aborted: an ordinary last piece, or the stream just ends."""
    aborted_in_queue: Literal["finish", "error", "nothing"]
    aborted_with_status: Literal["finish", "error"]
    """A request that the server gives up (503, 500): an ordinary last piece, or an error object in the stream."""
    sglext: tuple[str, ...]
    """Keys of `sglext` that a stream has."""
    parsed_logprobs: Literal["lost", "flushed"]
    """Logprobs of ids whose text a parser held back or took for a tool call."""
    top_logprobs: Literal["first", "each"]
    """In a piece of several ids all get the first one's alternatives, or each gets its own."""
    usage_details: bool
    """`continuous_usage_stats` has `prompt_tokens_details` too."""
    thoughts_flushed: bool
    """What the reasoning parser still holds back at the end is sent."""


class ChatWire(Document):
    """`/v1/chat/completions` as the release reads and answers it."""

    fields: tuple[str, ...]
    """Request fields that the release knows; any other is passed over without a word."""
    response: tuple[str, ...]
    """Keys in wire order; `sglext` is left out where nothing in it was asked for."""
    choice: tuple[str, ...]
    """Keys in wire order; `prompt_token_ids`, `response_token_ids` and `meta_info` only where asked for."""
    message: tuple[str, ...]
    sglext: tuple[str, ...]
    """Keys in wire order; those that were not asked for are left out."""
    experts_with_meta_info: bool
    """`sglext.routed_experts` is sent beside `meta_info` too, which has them."""
    empty_content: Literal["", "null"]
    no_tool_calls: Literal["null", "omitted"]
    tool_call_index: Literal["tool", "position", "minus_one"]
    """`index` of a whole message's call: the number that its parser gave it (`tool`: with most, the place of the called
    tool in the request; Kimi's counts calls), its place in the reply, or -1 from parsers that give no number. Calls in
    a JSON array are numbered by place in all releases."""
    unparsed_tool_block: Literal["kept", "dropped"]
    """A tool block without one valid call. `kept`: raw text, no calls, yet `tool_calls`; `dropped`: the text
    before the block, `stop`."""
    token_bytes: Literal["text", "token"]
    """`bytes` of a logprob: those of the shown text, or of the token itself."""
    aborted_in_queue: Literal["crashes", "empty"]
    """A waiting request that is aborted: a 500, or a completion without content."""
    bad_arguments: Literal["described", "parser"]
    """Tool arguments in the history that are no JSON: a message of the release's own, or the parser's."""
    max_tokens_first: bool
    """`max_tokens` wins over `max_completion_tokens`."""
    required_calls: Literal["array", "native"]
    """`tool_choice` required or named: a JSON array of calls, or calls as the family spells them, where its parser
    can hold the model to that."""
    tool_types: Literal["standard", "aliases"]
    """Types in the parameters of tools: those of JSON schemas alone, or names of databases and languages too."""
    tool_grammar_clash: Literal["dropped", "refused"]
    """Such a `tool_choice` beside a grammar of the request's own: it is passed over, or a 400."""
    stream: ChatStream

    @cached_property
    def known(self) -> frozenset[str]:
        """`fields`, to look one up in."""
        return frozenset(self.fields)


class CompletionWire(Document):
    """`/v1/completions` as the release reads and answers it."""

    fields: tuple[str, ...]
    response: tuple[str, ...]
    choice: tuple[str, ...]
    sglext: tuple[str, ...]
    """Keys in wire order, also of a stream; those that were not asked for are left out."""
    stream_sglext: tuple[str, ...]
    token_texts: Literal["text", "token"]
    """A token that is no whole character: shown as U+FFFD, or its bytes as Latin-1."""
    no_top_logprobs: Literal["crashes", "served"]
    """`logprobs: 0`."""
    echo_no_top_logprobs: Literal["crashes", "served"]
    """`logprobs: 0` with `echo`."""
    early_error: Literal["sse", "json"]
    """As `ChatStream.early_error`."""

    @cached_property
    def known(self) -> frozenset[str]:
        """`fields`, to look one up in."""
        return frozenset(self.fields)


class FinishWire(Document):
    """Which bound wins where several are met by one id."""

    length_first: bool
    """`max_new_tokens` over stop token and stop string; else it comes last."""
    stop_string_first: bool
    """A stop string over a stop token."""
    behind_stop_string: bool
    """A text that keeps its stop string (`no_stop_trim`) ends with it; else with the id that completes it."""


class UsageWire(Document):
    """`usage` of chat and completions."""

    keys: tuple[str, ...]
    nothing_cached: Literal["null", "zero"]
    """`prompt_tokens_details` of a prompt without cached ids, where the server reports the cache."""


class StopRegexLimits(Document):
    """Beyond which `stop_regex` is a 400."""

    count: int
    bytes: int


class SamplingWire(Document):
    """How the release words what it takes (sampling_params.py)."""

    temperature: str
    repetition_penalty: str
    positive_repetition_penalty: bool
    """A repetition penalty of 0 is refused."""
    grammars: str
    """Which fields exclude each other."""
    seeded: bool
    """`seed` of chat and completions reaches the sampler."""
    bad_grammar: str
    """What is said of a grammar that cannot be compiled: `{kind}` json or regex, `{key}` kind and text, `{error}`."""
    stop_regex_limits: StopRegexLimits | None


class Profile(Document):
    """One release's wire, whole: a file may say only in what it differs from its `base`."""

    release: str
    sglang: str
    """The release of SGLang, or the one that a fork stands on."""
    source: str = Field(min_length=1)
    """Where these facts come from."""
    meta_info: tuple[MetaKey, ...]
    """In wire order."""
    queue_abort: tuple[str, ...]
    """Keys of `meta_info`, in wire order, of a waiting request that is aborted: no other is sent."""
    cached_details: bool
    """`cached_tokens_details` says where cached ids lay; else it is null."""
    weight_versions: bool
    """Finished answers say which ids came from which weights, `metadata` of chat and completions too."""
    hidden_states_refusal: str
    """Why `return_hidden_states` is a 400 at a server that was not started for it."""
    stream_pace: Literal["remainder", "remainder_plain", "unsent"]
    """With a `stream_interval` above 1 a stream has a piece whenever the number of ids, divided by it, leaves 1;
    the same, but 0 under speculative decoding; or with the first id, and whenever as many are unsent."""
    may_fill_context: bool
    """Prompt and `max_new_tokens` together may be as long as the context."""
    finish: FinishWire
    sampling: SamplingWire
    generate: GenerateWire
    chat: ChatWire
    completions: CompletionWire
    usage: UsageWire

    @cached_property
    def _layouts(self) -> dict[frozenset[str], tuple[tuple[str, str], ...]]:
        return {}

    def layout(self, holds: frozenset[str]) -> tuple[tuple[str, str], ...]:
        """(key, name of its value) of `meta_info` in wire order, where these conditions hold.

        Beside the conditions of the keys: `idle`, finished with speculative decoding on and no verify step, and
        `queue_abort`.
        """
        found = self._layouts.get(holds)
        if found is None:
            found = self._layouts[holds] = tuple(self._keys(holds))
        return found

    def _keys(self, holds: frozenset[str]) -> Iterable[tuple[str, str]]:
        if "queue_abort" in holds:
            entries = {entry.key: entry for entry in self.meta_info}
            candidates: Iterable[MetaKey] = (entries[key] for key in self.queue_abort)
            return ((e.key, e.value or e.key) for e in candidates if "logprobs" not in e.when or "logprobs" in holds)
        return (
            (entry.key, entry.value or entry.key)
            for entry in self.meta_info
            if holds.issuperset(entry.when) or (entry.idle and "idle" in holds)
        )


def names() -> tuple[str, ...]:
    """All profiles, in order of family and release."""
    return tuple(sorted((file.stem for file in WIRE.glob("*.yaml")), key=_order))


def _order(name: str) -> tuple[str, list[int]]:
    family, _, version = name.rpartition("-")
    return family, [int(part) for part in version.split(".") if part.isdigit()]


@lru_cache(maxsize=32)
def load(name: str) -> Profile:
    """The profile of that name; an unknown one is an error that lists those that exist."""
    if name not in names():
        raise ProfileError(f"profile: {name!r} is none of {', '.join(names())}")
    return read(Profile, _document(name), name=f"fixtures/wire/{name}.yaml")


def _document(name: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """The file's document, laid over that of its base."""
    place = f"fixtures/wire/{name}.yaml"
    document: dict[str, Any] = dict(YamlFile(WIRE / f"{name}.yaml").data)
    base = document.pop("base", None)
    if base is None:
        return document
    if base in (name, *above) or base not in names():
        raise DocumentError(f"{place}: base: {base!r} is no other profile")
    try:
        whole: dict[str, Any] = overlay(_document(base, (name, *above)), document, place=place)
    except OverlayError as error:
        raise DocumentError(str(error)) from None
    return whole
