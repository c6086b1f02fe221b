"""In what the parsers of SGLang's releases differ. Read in the sources of 0.5.6, 10, 11, 13, 16, 20 and 23."""

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class Dialect:
    """Parser behaviour of one release."""

    numbers_tools: bool = True
    """A call is numbered by its tool's place in the request (from 0.5.8); before, it has the number -1."""
    trims_reasoning: bool = False
    """Thought and content lose the white space around them, and every opening tag (up to 0.5.11)."""
    drops_streamed_tags: bool = False
    """Every opening tag in the piece that holds the first one is dropped (up to 0.5.10)."""
    holds_back_tags: bool = False
    """What may be the beginning of a tag is not let out with a streamed thought (from 0.5.20)."""
    forgets_opening_tag: bool = False
    """A thought that is let out whole comes without its opening tag (from 0.5.20)."""
    glm_call_ends_thought: bool = True
    """`glm45`: a call ends a thought that was left open (from 0.5.10)."""
    qwen_call_ends_thought: bool = True
    """`qwen3`: likewise (from 0.5.16)."""
    kimi_call_ends_thought: bool = True
    """`kimi_k2`: likewise (from 0.5.10); before, it reads as `deepseek-r1` does."""
    kimi_strips_tokens: bool = True
    """`kimi_k2` streaming: content loses every token of a call (from 0.5.10); before, the closing ones."""
    kimi_any_id: bool = True
    """`kimi_k2`: a call may have a number alone for its id (from 0.5.13)."""
    kimi_counts_calls: bool = True
    """`kimi_k2`: a call's number is its place in the reply, and arguments stream with the name (from 0.5.16); before,
    it is its id's own."""
    glm_plain: bool = False
    """`glm45`: calls are streamed whole, and values are read by a schema's plain `type` (up to 0.5.9)."""
    glm_trims_values: bool = False
    """`glm45`: values lose the white space around them (up to 0.5.10)."""
    glm_strings_raw: bool = False
    """`glm45`: what a schema calls a string and is no JSON is taken as it stands (from 0.5.20)."""
    glm_streams_at_once: bool = False
    """`glm45` streaming: arguments that come with the name are let out with it, and each call is closed (from 0.5.20);
    before, a call whose last argument is an object stays open."""
    streams_ascii: bool = False
    """`qwen25` streaming: arguments are escaped to ASCII (before 0.5.8)."""
    separator_first: bool = True
    """JSON array streaming: behind a call the comma is looked for before the bracket (from 0.5.10); before, a bracket
    within the arguments is taken for the array's."""
    empty_arguments_end: bool = True
    """`qwen25` streaming: an empty arguments object ends its call (from 0.5.11)."""


@lru_cache(maxsize=32)
def dialect(release: str) -> Dialect:
    """The parsers of an SGLang release, `0.5.16` or text that ends with such a number."""
    found = re.search(r"(\d+)\.(\d+)\.(\d+)\s*$", release)
    if found is None:
        raise ValueError(f"release: {release!r} does not end with a version such as 0.5.16")
    version = tuple(map(int, found.groups()))
    return Dialect(
        numbers_tools=version >= (0, 5, 8),
        trims_reasoning=version < (0, 5, 13),
        drops_streamed_tags=version < (0, 5, 11),
        holds_back_tags=version >= (0, 5, 20),
        forgets_opening_tag=version >= (0, 5, 20),
        glm_call_ends_thought=version >= (0, 5, 10),
        qwen_call_ends_thought=version >= (0, 5, 16),
        kimi_call_ends_thought=version >= (0, 5, 10),
        kimi_strips_tokens=version >= (0, 5, 10),
        kimi_any_id=version >= (0, 5, 13),
        kimi_counts_calls=version >= (0, 5, 16),
        glm_plain=version < (0, 5, 10),
        glm_trims_values=version < (0, 5, 11),
        glm_strings_raw=version >= (0, 5, 20),
        glm_streams_at_once=version >= (0, 5, 20),
        streams_ascii=version < (0, 5, 8),
        separator_first=version >= (0, 5, 10),
        empty_arguments_end=version >= (0, 5, 11),
    )
