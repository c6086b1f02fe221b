"""Run by the interpreter that has transformers, as `checks.py NAME FOLDER`. It need not have pytest."""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from miles_sim.hf_tokenizer import HuggingFaceTokenizer
from miles_sim.tokenizer import FIRST_PIECE, ByteTokenizer, TokenizerError

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
CALLED = {**CALL, "function": {"name": "f", "arguments": {"a": 1}}}
USER = {"role": "user", "content": "ünd"}
TOOL = {"role": "tool", "content": " r ", "tool_call_id": "c"}
SYSTEM = {"role": "system", "content": "s"}

GROUPING = (
    "{%- for m in messages %}"
    "{%- if m.role == 'tool' %}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}"
    "{{ '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}"
    "{%- else %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}"
    "{%- for call in m.tool_calls or [] %}{{ '\\n<tool_call>' + (call.function | tojson) }}{% endfor %}"
    "{{ '<|im_end|>\\n' }}{% endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
    "{%- endif %}"
)
"""As Qwen's: a newline behind each close, tool results in a row in one turn, an option that opens the reply."""
MOVING = (
    "{% for m in messages if m.role == 'system' %}[{{ m.content }}]{% endfor %}"
    "{% for m in messages if m.role != 'system' %}<{{ m.content }}>{% endfor %}"
)


def same_ids(folder: Path) -> None:
    """A saved tokenizer gives the ids of the built-in one, whole and behind a sampled reply."""
    for family in ("chatml", "delimiter"):
        own = ByteTokenizer(family)
        hf = HuggingFaceTokenizer(own.save(folder / family))
        assert (hf.max_trim_tokens, hf.decode([own.text_stop_id, 65], skip_special_tokens=True)) == (
            own.max_trim_tokens,
            "A",
        )
        assert hf.vocab_size == own.vocab_size
        (folder / family / "config.json").unlink()
        assert HuggingFaceTokenizer(folder / family).vocab_size is None
        replied = {"role": "assistant", "content": "", "tool_calls": [CALLED]}
        for tools in (None, TOOLS):
            for opener in (True, False):
                spelt: list[Any] = [SYSTEM, USER, {**replied, "content": None, "tool_calls": [CALL]}, TOOL]
                found = hf.render(spelt, tools=tools, add_generation_prompt=opener)
                plain: list[Any] = [SYSTEM, USER, replied, TOOL]
                assert found == own.render(plain, tools=tools, add_generation_prompt=opener), family
        drawn = random.Random(1)
        for _ in range(60):
            _extends_alike(own, hf, drawn)


def _extends_alike(own: ByteTokenizer, hf: HuggingFaceTokenizer, drawn: random.Random) -> None:
    sampled = [drawn.randrange(FIRST_PIECE + 400) for _ in range(drawn.randrange(6))]
    stop = drawn.choice([[], [own.text_stop_id], [own.call_stop_id]])
    prefix = [*own.render([USER]), *sampled, *stop]
    appended: Any = drawn.choice([[USER], [TOOL], [TOOL, TOOL], [TOOL, USER], [SYSTEM, USER]])
    found = hf.extend(prefix, appended)
    if own.family.name == "chatml" and not stop:  # the end of an unfinished reply is the template's to write
        assert found == [*prefix, own.text_stop_id, *own.render(appended)], appended
    else:
        assert found == own.extend(prefix, appended), (own.family.name, stop, appended)
    assert hf.decode(found) == own.decode(found)


def boundaries(folder: Path) -> None:
    """What is put behind a canonical reply is what rendering the whole conversation puts there."""
    hf = HuggingFaceTokenizer(ByteTokenizer("chatml").save(folder), chat_template=GROUPING)
    reply = {"role": "assistant", "content": "hello"}
    follow_ups: Any = [[USER], [TOOL], [TOOL, TOOL], [TOOL, USER], [TOOL, TOOL, USER], [SYSTEM]]
    options: Any = [{}, {"enable_thinking": False}, {"enable_thinking": True}]
    for appended in follow_ups:
        for option in options:
            found = hf.extend([*hf.render([USER]), *hf.encode("hello<|im_end|>")], appended, template_options=option)
            whole = hf.render([USER, reply, *appended], template_options=option)
            assert found == whole, (appended, hf.decode(found), hf.decode(whole))
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert hf.decode(hf.render(parts)).startswith("<|im_start|>user\na b<|im_end|>")


def refused(folder: Path) -> None:
    """What cannot be rendered right is refused by name."""
    ByteTokenizer("chatml").save(folder)
    hf = HuggingFaceTokenizer(folder)
    moving = HuggingFaceTokenizer(folder, chat_template=MOVING)
    late: Any = [{"role": "system", "content": "late"}]
    cases: list[tuple[str, Callable[[], object]]] = [
        ("alters the conversation before an appended 'system'", lambda: moving.extend([65], late)),
        (
            "alters or repeats a plain reply",
            lambda: HuggingFaceTokenizer(folder, chat_template="{{ messages[0].role }}"),
        ),
        ("content[0]: only text parts", lambda: hf.render([{"role": "user", "content": [{"type": "image"}]}])),
        ("content: int", lambda: hf.render([{"role": "user", "content": 3}])),
        ("no message", lambda: hf.extend([65], [])),
        (str(folder), lambda: _broken(folder)),
    ]
    for named, work in cases:
        assert named in _refusal(work), named


def _refusal(work: Callable[[], object]) -> str:
    try:
        work()
    except TokenizerError as error:
        return str(error)
    return "not refused"


def _broken(folder: Path) -> HuggingFaceTokenizer:
    (folder / "tokenizer.json").write_text("{", encoding="utf-8")
    return HuggingFaceTokenizer(folder)


if __name__ == "__main__":
    {"same_ids": same_ids, "boundaries": boundaries, "refused": refused}[sys.argv[1]](Path(sys.argv[2]))
