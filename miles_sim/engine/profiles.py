"""Profiles: what each release of SGLang puts on the wire, as data from `fixtures/wire/`."""

from functools import cached_property, lru_cache
from typing import Any, Literal

import yaml
from pydantic import Field

from miles_sim.document import Document, read
from miles_sim.resources import FIXTURES

WIRE = FIXTURES / "wire"


class ProfileError(ValueError):
    """No such profile."""


class MetaKey(Document):
    """One key of `meta_info`."""

    key: str
    type: Literal["str", "int", "float", "list", "object", "int?", "object?"]
    when: Literal["always", "logprobs", "speculative"] = "always"
    """`speculative`: speculative decoding is on and at least one verify step ran."""
    value: str | None = None
    """Name of the engine's own value, where it is not the key."""


class ChatWire(Document):
    """`/v1/chat/completions` as the release answers it."""

    ignored_fields: tuple[str, ...]
    """Request fields that other releases know and this one passes over."""
    response: tuple[str, ...]
    """Keys in wire order; those that were not asked for are left out: `sglext`, `prompt_token_ids`, `meta_info`."""
    choice: tuple[str, ...]
    message: tuple[str, ...]
    usage: tuple[str, ...]
    empty_content: Literal["", "null"]
    no_tool_calls: Literal["null", "omitted"]
    tool_call_index: Literal["zero", "position", "minus_one"]
    unparsed_tool_block: Literal["kept", "dropped"]
    """A tool block without one valid call. `kept`: raw text, no calls, yet `tool_calls`; `dropped`: the text
    before the block, `stop`."""
    stop_string_first: bool
    """A stop string wins over a stop token that ends at the same place."""
    stream_refuses: tuple[str, ...]
    """Request fields that are a 400 together with `stream`."""
    bad_arguments: Literal["described", "parser"]
    """Tool arguments in the history that are no JSON: a message of the release's own, or the parser's."""
    temperature_rule: str
    """How the release says which temperatures it takes."""


class Profile(Document):
    """One release's wire."""

    release: str
    source: str = Field(min_length=1)
    """Where these facts come from."""
    meta_info: tuple[MetaKey, ...]
    """In wire order."""
    chat: ChatWire

    @cached_property
    def layouts(self) -> dict[tuple[bool, bool], tuple[tuple[str, str], ...]]:
        """(key, name of its value) in wire order, by (logprobs asked for, a verify step ran)."""
        return {
            (logprobs, speculative): tuple(
                (entry.key, entry.value or entry.key)
                for entry in self.meta_info
                if entry.when == "always"
                or (entry.when == "logprobs" and logprobs)
                or (entry.when == "speculative" and speculative)
            )
            for logprobs in (False, True)
            for speculative in (False, True)
        }


def names() -> tuple[str, ...]:
    """All profiles, sorted."""
    return tuple(sorted(file.stem for file in WIRE.glob("*.yaml")))


@lru_cache(maxsize=32)
def load(name: str) -> Profile:
    """The profile of that name; an unknown one is an error that lists those that exist."""
    if name not in names():
        raise ProfileError(f"profile: {name!r} is none of {', '.join(names())}")
    document: Any = yaml.safe_load((WIRE / f"{name}.yaml").read_text(encoding="utf-8"))
    return read(Profile, document, name=f"fixtures/wire/{name}.yaml")
