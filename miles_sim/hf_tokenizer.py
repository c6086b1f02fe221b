"""A Hugging Face tokenizer folder as the tokenizer of sessions: real models, real chat templates."""

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from miles_sim.tokenizer import Message, TokenizerError

_MARK = "mark0between0"
"""A reply that no template alters and no other text contains."""
_OPENING: tuple[Message, ...] = ({"role": "user", "content": "ask"},)
_PLAIN: Message = {"role": "assistant", "content": _MARK}
_CALLING: Message = {
    **_PLAIN,
    "tool_calls": [{"id": "call00000", "type": "function", "function": {"name": "f", "arguments": {}}}],
}


class HuggingFaceTokenizer:
    """`miles_sim.tokenizer.ChatTokenizer` over `transformers.AutoTokenizer`; needs the extra `hf`.

    `folder`: `tokenizer.json` or the like, its config, and a chat template there, unless `chat_template` gives one.
    What follows a reply is rendered behind a stand-in for the history, and only that part is tokenised: sampled ids
    are never rendered again. TokenizerError where transformers, the folder or its template is missing or unfit.
    """

    def __init__(self, folder: str | Path, *, chat_template: str | None = None) -> None:
        self._tokenizer = _load(Path(folder))
        if chat_template is not None:
            self._tokenizer.chat_template = chat_template
        if not getattr(self._tokenizer, "chat_template", None):
            raise TokenizerError(f"tokenizer: {folder}: has no chat template")
        self.trailing_ids = frozenset(_stop_ids(self._tokenizer, Path(folder)))
        self.vocab_size = _vocab_size(Path(folder))
        """Ids that the model has, those that pad its vocabulary included; None where its `config.json` is not there."""
        closed = self._text([*_OPENING, _PLAIN], {}, opener=False)
        if closed.count(_MARK) != 1:
            raise TokenizerError(f"tokenizer: {folder}: its chat template alters or repeats a plain reply")
        self._closing = closed.partition(_MARK)[2]
        # A template without a closing token of its own ends a reply with the next message's opener.
        self.max_trim_tokens = 0 if self._closing.strip() else 1

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, special tokens in it as such, none added."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        text: str = self._tokenizer.decode(
            list(ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
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
        """Canonical ids of a whole conversation."""
        options = {**(template_options or {}), "tools": list(tools) if tools else None}
        return self.encode(self._text(messages, options, opener=add_generation_prompt))

    def extend(
        self,
        prefix: Sequence[int],
        appended: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """`prefix`, the template's end of that reply as far as it was not sampled, `appended` and the next opener.

        `tools` stand in front of a conversation, so they change nothing behind a prefix. TokenizerError where the
        template does not put `appended` behind what it follows, as some do with a late system message.
        """
        if not appended:
            raise TokenizerError("appended: no message; a reply is followed by at least one")
        ids = list(prefix)
        following = self.encode(self._following(appended, template_options or {}))
        if ids and following and ids[-1] == following[0] and ids[-1] in self.trailing_ids:
            return ids + following[1:]
        if self.max_trim_tokens and ids and ids[-1] in self.trailing_ids:
            ids.pop()
        return ids + following

    def _following(self, appended: Sequence[Message], options: Mapping[str, Any]) -> str:
        """What stands behind the last character of a reply that `appended` follows."""
        reply = _CALLING if appended[0].get("role") == "tool" else _PLAIN
        before = self._text([*_OPENING, reply], options, opener=False)
        whole = self._text([*_OPENING, reply, *appended], options, opener=True)
        if not before.endswith(self._closing):
            raise TokenizerError("chat template: ends a reply with tool calls otherwise than a plain one")
        before = before[: len(before) - len(self._closing)]
        if not whole.startswith(before):
            role = appended[0].get("role")
            raise TokenizerError(f"chat template: alters the conversation before an appended {role!r} message")
        return whole[len(before) :]

    def _text(self, messages: Sequence[Message], options: Mapping[str, Any], *, opener: bool) -> str:
        plain = [_readable(message, place) for place, message in enumerate(messages)]
        text: str = self._tokenizer.apply_chat_template(
            plain, tokenize=False, add_generation_prompt=opener, **{"tools": None, **options}
        )
        return text


def _load(folder: Path) -> Any:
    if not folder.is_dir():
        raise TokenizerError(f"tokenizer: {folder} is no folder")
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise TokenizerError(f"tokenizer: {folder}: transformers is missing; pip install 'miles-sim[hf]'") from error
    try:
        return transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # whatever transformers, tokenizers or a broken file raise
        raise TokenizerError(f"tokenizer: {folder}: {type(error).__name__}: {error}") from error


def _vocab_size(folder: Path) -> int | None:
    """As the model's config says, or the one of its text part."""
    file = folder / "config.json"
    if not file.is_file():
        return None
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        size = config.get("vocab_size", config.get("text_config", {}).get("vocab_size"))
    except (ValueError, AttributeError) as error:
        raise TokenizerError(f"tokenizer: {file}: {error}") from error
    return size if type(size) is int else None


def _stop_ids(tokenizer: Any, folder: Path) -> set[int]:
    """The tokenizer's end of text, and those that `generation_config.json` stops at."""
    found = {tokenizer.eos_token_id}
    file = folder / "generation_config.json"
    if file.is_file():
        try:
            stops = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
        except (ValueError, AttributeError) as error:
            raise TokenizerError(f"tokenizer: {file}: {error}") from error
        found |= set(stops) if isinstance(stops, list) else {stops}
    return {token for token in found if isinstance(token, int)}


def _readable(message: Message, place: int) -> dict[str, Any]:
    """A message as SGLang hands it to the template: text parts joined, tool arguments as the object they spell."""
    read = {**message, "content": _content(message.get("content"), place)}
    if message.get("tool_calls"):
        read["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    return read


def _content(content: Any, place: int) -> str:
    if content is None:
        return ""
    if isinstance(content, list):
        for n, part in enumerate(content):
            if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
                raise TokenizerError(f"messages[{place}].content[{n}]: only text parts can be rendered")
        return " ".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise TokenizerError(f"messages[{place}].content: {type(content).__name__} is not a string")
    return content


def _call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}
