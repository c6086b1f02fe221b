"""The tokenizer every part speaks: byte-level, reversible, built in.

Ids below 256 are bytes and are all that `encode` ever emits (beside special tokens). Above them stand
word pieces that only a model samples: they decode to text whose canonical encoding is other ids, so code
that re-tokenises sampled text, where it should keep the sampled ids, shows at once.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

import orjson

from miles_sim.families import FAMILIES, Family

__all__ = [
    "FAMILIES",
    "FIRST_PIECE",
    "FIRST_SPACED_PIECE",
    "FIRST_SPECIAL",
    "PIECES",
    "ByteTokenizer",
    "ChatTokenizer",
    "Family",
    "Message",
    "TokenizerError",
]

Message = Mapping[str, Any]


class TokenizerError(ValueError):
    """An id outside the vocabulary, an unknown family, or messages that the template refuses."""


class ChatTokenizer(Protocol):
    """What generate, merge and the session server need of a tokenizer; any object of this shape will do."""

    @property
    def max_trim_tokens(self) -> int:
        """Most trailing sampled tokens that the next turn's template may render as its own delimiter."""
        ...

    @property
    def trailing_ids(self) -> frozenset[int]:
        """Ids left out at the end of a sequence when two of them are compared (stop tokens, delimiters)."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str: ...

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        template_options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """The canonical ids of a whole conversation."""
        ...

    def extend(
        self,
        prefix: Sequence[int],
        appended: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """`prefix` (ids that end with a sampled reply) followed by `appended` and the next generation prompt.

        At most `max_trim_tokens` ids at the end of `prefix` give way to the template's own delimiter.
        Costs the length of the result, never a second rendering of the prefix.
        """
        ...


_WORDS = """
the to of and in is it that for on with as this be are was by we can will not have from at or an all but if you
our one has new more when there also now then them only other what which how who each both after before over
under into out up down first last next same any some most many few own very just here agent answer append array
async batch branch buffer build byte cache call case change check chunk class client close code column commit
compare compile config count create data debug default delete depth deploy diff disk draft edge edit engine
entry error event fail fetch field file filter find fix flag flow format function graph group guard handle hash
head header heap host image index input insert job join key label layer leaf length level limit line link list
load local lock log loop mask match merge method model module move name network node null number object offset
open option order output page parent parse part patch path plan point policy pool port print process prompt
proof queue range rank rate read record reduce region release remote render repair reply report request reset
result retry return reward root route row rule run sample scale schema scope score script search seed select
send series server session shape shard signal size slice slot sort source span split stack stage start state
status step stop store stream string sum switch table tail target task test text thread time token tool trace
track train transfer tree trim true type unit update user value vector verify version view wait weight width
window word work worker write zero
""".split()  # noqa: SIM905 - three hundred quoted words would read worse

PIECES: tuple[str, ...] = tuple(word for word in _WORDS) + tuple(f" {word}" for word in _WORDS)
"""Sampled-only word pieces: each word bare, then each with a leading space."""

FIRST_PIECE = 256
FIRST_SPACED_PIECE = FIRST_PIECE + len(_WORDS)
FIRST_SPECIAL = FIRST_PIECE + len(PIECES)


_AS_IT_IS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_SHORT, _MOST = 2048, 128
"""Bytes of a conversation that is kept once it is rendered, and how many are."""
_tojson = json.JSONEncoder(ensure_ascii=False).encode


@lru_cache(maxsize=16)
def _compiled(template: str) -> Any:
    from jinja2 import Environment  # no sandbox: templates are the families' own, and it would take half the time

    environment = Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = _tojson
    return environment.from_string(template)


@lru_cache
def built_in(family: str) -> "ByteTokenizer":
    """The tokenizer of a built-in family, the same object each time: it never changes."""
    return ByteTokenizer(family)


class ByteTokenizer:
    """The built-in tokenizer of one `Family`.

    Vocabulary: 256 bytes, the word `PIECES`, the family's special tokens and its marks, in this order.
    """

    def __init__(self, family: str = "chatml") -> None:
        if family not in FAMILIES:
            raise TokenizerError(f"tokenizer family: {family!r} is not one of {sorted(FAMILIES)}")
        self.family = FAMILIES[family]
        self.special_ids = {text: FIRST_SPECIAL + i for i, text in enumerate(self.family.specials)}
        self.first_mark = FIRST_SPECIAL + len(self.special_ids)
        self.mark_ids = {text: self.first_mark + i for i, text in enumerate(self.family.marks)}
        """Single ids that decode to text like any other: think and tool tags."""
        self.vocab_size = self.first_mark + len(self.mark_ids)
        self.text_stop_id = self.special_ids[self.family.text_stop]
        self.call_stop_id = self.special_ids[self.family.call_stop]
        self.stop_ids = frozenset({self.text_stop_id, self.call_stop_id})
        self.eos_id = self.special_ids[self.family.eos]
        self.max_trim_tokens = self.family.max_trim_tokens
        self.trailing_ids = self.stop_ids if self.max_trim_tokens else frozenset[int]()
        self._added = {**self.special_ids, **self.mark_ids}
        self._split_added = re.compile("(" + "|".join(map(re.escape, self._added)) + ")")
        self._may_split = re.compile("|".join(sorted({re.escape(text[:2]) for text in self._added})))
        self._bytes = [bytes([i]) for i in range(256)] + [piece.encode() for piece in PIECES]
        self._bytes += [text.encode() for text in self._added]
        self._shown = list(self._bytes)
        """Without the text of special tokens."""
        self._rendered: dict[bytes, tuple[int, ...]] = {}
        """The latest short conversations, as JSON, to their ids."""
        self._shown[FIRST_SPECIAL : self.first_mark] = [b""] * len(self.special_ids)

    def encode(self, text: str) -> list[int]:
        """Canonical ids: one a byte, one a special token that stands in the text."""
        if self._may_split.search(text) is None:
            return list(text.encode())
        ids: list[int] = []
        for part in self._split_added.split(text):
            added = self._added.get(part)
            if added is None:
                ids.extend(part.encode())
            else:
                ids.append(added)
        return ids

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = False) -> str:
        """Text of `ids`; bytes that form no character become U+FFFD, as in any byte-level tokenizer."""
        table = self._shown if skip_special_tokens else self._bytes
        try:
            several = tuple(ids)
            pieces = itemgetter(*several)(table) if len(several) > 1 else [table[i] for i in several]
            return b"".join(pieces).decode(errors="replace")
        except (IndexError, TypeError):
            bad = next(i for i in ids if not isinstance(i, int) or not 0 <= i < self.vocab_size)
            raise TokenizerError(f"token id: {bad!r} is not in 0..{self.vocab_size - 1}") from None

    def name(self, token: int) -> str:
        """A readable name for one id: special tokens as they are, pieces and bytes quoted."""
        text = self._bytes[token]
        return text.decode() if token >= FIRST_SPECIAL else repr(text.decode("latin-1"))[1:-1]

    def render_text(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        template_options: Mapping[str, Any] | None = None,
    ) -> str:
        """The conversation as the family's template writes it."""
        for i, message in enumerate(messages):
            if not isinstance(message.get("role"), str):
                raise TokenizerError(f"messages[{i}].role: {message.get('role')!r} is not a string")
            if not isinstance(message.get("content"), str | None):
                raise TokenizerError(f"messages[{i}].content: {type(message['content']).__name__} is not a string")
        if self.family.object_arguments:
            messages = [_with_object_arguments(message, i) for i, message in enumerate(messages)]
        text: str = _compiled(self.family.template).render(
            messages=messages, tools=tools, add_generation_prompt=add_generation_prompt, **(template_options or {})
        )
        return text

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        template_options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Canonical ids of a whole conversation. The same one is rendered once: rollouts of a prompt ask alike."""
        try:
            asked = orjson.dumps([messages, tools, add_generation_prompt, template_options], option=_AS_IT_IS)
        except (TypeError, RecursionError):
            asked = None
        known = None if asked is None else self._rendered.get(asked)
        if known is not None:
            return list(known)
        text = self.render_text(
            messages, tools=tools, add_generation_prompt=add_generation_prompt, template_options=template_options
        )
        ids = self.encode(text)
        if asked is not None and len(asked) <= _SHORT:
            if len(self._rendered) >= _MOST:
                self._rendered.clear()
            self._rendered[asked] = tuple(ids)
        return ids

    def extend(
        self,
        prefix: Sequence[int],
        appended: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """`prefix`, less a stop token that `appended` opens with again, then `appended` and the next opener.

        `tools` stand in the first system message only, so they change nothing behind a prefix.
        """
        if not appended:
            raise TokenizerError("appended: no message; a reply is followed by at least one")
        ids = list(prefix)
        if self.max_trim_tokens and ids and ids[-1] in self.stop_ids:
            ids.pop()
        return ids + self.render(appended, template_options=template_options)

    def save(self, folder: str | Path) -> Path:
        """Write a Hugging Face tokenizer folder (`tokenizer.json` and its config) that gives the same ids."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for file, document in self._hugging_face().items():
            (folder / file).write_text(json.dumps(document, ensure_ascii=False, indent=1), encoding="utf-8")
        return folder

    def _hugging_face(self) -> dict[str, Any]:
        symbol = _byte_symbols()
        vocabulary = {symbol[i]: i for i in range(256)}
        vocabulary |= {"".join(symbol[b] for b in piece.encode()): FIRST_PIECE + i for i, piece in enumerate(PIECES)}
        added = [
            {
                "id": token,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": text in self.special_ids,
            }
            for text, token in self._added.items()
        ]
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        return {
            "tokenizer.json": {
                "version": "1.0",
                "truncation": None,
                "padding": None,
                "added_tokens": added,
                "normalizer": None,
                "pre_tokenizer": byte_level,
                "post_processor": byte_level,
                "decoder": byte_level,
                "model": {
                    "type": "BPE",
                    "dropout": None,
                    "unk_token": None,
                    "continuing_subword_prefix": None,
                    "end_of_word_suffix": None,
                    "fuse_unk": False,
                    "byte_fallback": False,
                    "ignore_merges": False,
                    "vocab": vocabulary,
                    "merges": [],
                },
            },
            "tokenizer_config.json": {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": self.family.text_stop,
                "pad_token": self.family.eos,
                "clean_up_tokenization_spaces": False,
                "model_max_length": 1 << 20,
                "chat_template": self.family.template,
                "additional_special_tokens": list(self.special_ids),
            },
            "config.json": {"model_type": "qwen2", "vocab_size": self.vocab_size},
            "generation_config.json": {"eos_token_id": sorted(self.stop_ids)},
        }


def _with_object_arguments(message: Message, number: int) -> Message:
    """The message with the arguments of its tool calls as objects, as SGLang hands them to a template."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    return {**message, "tool_calls": [_with_object(call, f"messages[{number}].tool_calls") for call in calls]}


def _with_object(call: Mapping[str, Any], place: str) -> dict[str, Any]:
    function = call.get("function") or call
    given = function.get("arguments")
    try:
        arguments = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        arguments = given
    if not isinstance(arguments, Mapping):
        raise TokenizerError(f"{place}[].function.arguments: {given!r} is not a JSON object")
    return {**call, "function": {**function, "arguments": arguments}}


def _byte_symbols() -> list[str]:
    """The printable stand-in of each byte in byte-level BPE vocabularies (GPT-2's scheme)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    symbols = {byte: chr(byte) for byte in printable}
    spare = (chr(0x100 + n) for n in range(256))
    return [symbols.get(byte) or next(spare) for byte in range(256)]
