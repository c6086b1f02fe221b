"""Chat formats: special tokens, stops, templates, and how each family spells thoughts and tool calls.

Templates render an assistant message exactly as `engine/formats` samples it, so that a conversation rendered anew has
the ids that were sampled, up to the ids of single words. What the model cards' own templates take away from earlier
turns (thoughts above all) stays: a conversation that is trained on must not change behind the model's back.
"""

from dataclasses import dataclass
from typing import Literal

ToolFormat = Literal["qwen25", "deepseekv3", "deepseekv31", "glm45", "kimi_k2"]
ReasoningFormat = Literal["qwen3", "deepseek-r1", "glm45", "kimi_k2"]

_TOOLS_BLOCK = (
    "{%- if tools %}{{ '\\n\\n# Tools\\n<tools>' }}"
    "{%- for tool in tools %}{{ '\\n' + (tool | tojson) }}{%- endfor %}{{ '\\n</tools>' }}{%- endif %}"
)
_REASONING = "{%- if m.reasoning_content %}{{ '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{%- endif %}"
_EACH_CALL = "{%- for call in m.tool_calls or [] %}{%- set f = call.function or call %}"
_ARGUMENTS = "{{ f.arguments if f.arguments is string else (f.arguments | tojson) }}"
_CALLS = (
    _EACH_CALL + "{{ '\\n' if m.content or not loop.first else '' }}"
    "{{ '<tool_call>\\n{\"name\": ' + (f.name | tojson) + ', \"arguments\": ' }}"
    + _ARGUMENTS
    + "{{ '}\\n</tool_call>' }}{%- endfor %}"
)
_FIRST_SYSTEM = "{%- if tools and (not messages or messages[0].role != 'system') %}"

_CHATML = (
    _FIRST_SYSTEM + "{{ '<|im_start|>system\\n' }}" + _TOOLS_BLOCK + "{{ '<|im_end|>' }}{%- endif %}"
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    + _REASONING
    + "{{ m.content or '' }}"
    + _CALLS
    + "{%- if loop.first and m.role == 'system' %}"
    + _TOOLS_BLOCK
    + "{%- endif %}{{ '<|im_end|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"
)
_DELIMITER = (
    _FIRST_SYSTEM + "{{ '<|system|>\\n' }}" + _TOOLS_BLOCK + "{%- endif %}"
    "{%- for m in messages %}{{ '<|observation|>\\n' if m.role == 'tool' else '<|' + m.role + '|>\\n' }}"
    + _REASONING
    + "{{ m.content or '' }}"
    + _CALLS
    + "{%- if loop.first and m.role == 'system' %}"
    + _TOOLS_BLOCK
    + "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{%- endif %}"
)


@dataclass(frozen=True)
class Family:
    """A chat format: its special tokens, stops, template and what the template does at a turn's end."""

    name: str
    specials: tuple[str, ...]
    text_stop: str
    """The token that ends a plain reply."""
    call_stop: str
    """The token that ends a reply with tool calls."""
    template: str
    max_trim_tokens: int
    miles_tito: str
    """The name under which miles registers the same boundary behaviour (`--tito-model`)."""
    eos: str = "<|endoftext|>"
    marks: tuple[str, ...] = ()
    """Single ids that are no special tokens: they stay in a text that is decoded without those."""
    tool_format: ToolFormat = "qwen25"
    """How calls are spelled; the name of SGLang's parser for it."""
    reasoning_format: ReasoningFormat | None = None
    """SGLang's parser for what is thought before it is said; None: the family does not think."""
    think: tuple[str, str] = ("<think>\n", "\n</think>\n\n")
    """What opens and closes a thought. A family that thinks opens and closes one even around nothing."""
    object_arguments: bool = False
    """The template goes through a call's arguments one by one, so they must be an object, or JSON of one."""


def _assistant(family_calls: str, think: tuple[str, str]) -> str:
    """A reply as it was sampled: thought, content and calls, white space at their seams as the format has it.

    Where the content brings its own thought (a server that does not separate it), none is put before it.
    """
    opening, closing = (part.replace("\n", "\\n") for part in think)
    return (
        "{%- set said = (m.content or '') %}"
        "{%- if '</think>' not in said or m.reasoning_content %}"
        f"{{{{ '{opening}' + (m.reasoning_content or '').strip('\\n') + '{closing}' }}}}"
        "{%- set said = said.lstrip('\\n') %}{%- endif %}{{ said }}" + family_calls
    )


def _family_template(
    *, opener: dict[str, str], closer: dict[str, str], calls: str, think: tuple[str, str], tools_end: str, prompt: str
) -> str:
    """`opener` and `closer`: by role, `''` for any other. `prompt`: what a reply is asked for with."""

    def by_role(texts: dict[str, str]) -> str:
        cases = "".join(f"'{text}' if m.role == '{role}' else " for role, text in texts.items() if role)
        return f"{{{{ {cases}'{texts.get('', '')}' }}}}"

    system = f"{{{{ '{opener['system']}' }}}}" + _TOOLS_BLOCK + f"{{{{ '{tools_end}' }}}}"
    reply = (
        "{%- if m.role == 'assistant' %}" + _assistant(calls, think) + "{%- else %}{{ m.content or '' }}{%- endif %}"
    )
    opening, closing = (part.replace("\n", "\\n") for part in think)
    silent = f"{{%- if enable_thinking is false or thinking is false %}}{{{{ '{opening}{closing}' }}}}{{%- endif %}}"
    return (
        _FIRST_SYSTEM + system + "{%- endif %}{%- for m in messages %}" + by_role(opener) + reply
        + "{%- if loop.first and m.role == 'system' %}" + _TOOLS_BLOCK + "{%- endif %}" + by_role(closer)
        + "{%- endfor %}{%- if add_generation_prompt %}" + f"{{{{ '{prompt}' }}}}" + silent + "{%- endif %}"
    )  # fmt: skip


_GLM_CALLS = (
    _EACH_CALL + "{{ '\\n' if m.content or not loop.first else '' }}{{ '<tool_call>' + f.name + '\\n' }}"
    "{%- for key, value in f.arguments.items() %}"
    "{{ '<arg_key>' + key + '</arg_key>\\n<arg_value>' }}{{ value if value is string else (value | tojson) }}"
    "{{ '</arg_value>\\n' }}{%- endfor %}{{ '</tool_call>' }}{%- endfor %}"
)
_KIMI_CALLS = (
    "{%- if m.tool_calls %}{{ '<|tool_calls_section_begin|>' }}" + _EACH_CALL + "{{ '<|tool_call_begin|>' + call.id + "
    "'<|tool_call_argument_begin|>' }}" + _ARGUMENTS + "{{ '<|tool_call_end|>' }}{%- endfor %}"
    "{{ '<|tool_calls_section_end|>' }}{%- endif %}"
)


def _deepseek_calls(head: str, tail: str, between: str) -> str:
    return (
        "{%- if m.tool_calls %}{{ '<｜tool▁calls▁begin｜>' }}"
        + _EACH_CALL
        + f"{{{{ '' if loop.first else '{between}' }}}}{{{{ '<｜tool▁call▁begin｜>{head}' }}}}"
        + _ARGUMENTS
        + f"{{{{ '{tail}<｜tool▁call▁end｜>' }}}}{{%- endfor %}}{{{{ '<｜tool▁calls▁end｜>' }}}}{{%- endif %}}"
    )


_THINK = ("<think>", "</think>")
_NEWLINES = ("<think>\n", "\n</think>\n\n")
_DEEPSEEK_MARKS = (
    *_THINK, "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
)  # fmt: skip


def _deepseek(name: str, tool_format: ToolFormat, calls: str) -> Family:
    end = "<｜end▁of▁sentence｜>"
    tool = "<｜tool▁output▁begin｜>"
    return Family(
        name=name,
        specials=("<｜begin▁of▁sentence｜>", end, "<｜User｜>", "<｜Assistant｜>", tool, "<｜tool▁output▁end｜>"),
        text_stop=end,
        call_stop=end,
        template=_family_template(
            opener={
                "system": "<｜begin▁of▁sentence｜>",
                "assistant": "<｜Assistant｜>",
                "tool": tool,
                "": "<｜User｜>",
            },
            closer={"assistant": end, "tool": "<｜tool▁output▁end｜>"},
            calls=calls,
            think=_NEWLINES,
            tools_end="",
            prompt="<｜Assistant｜>",
        ),
        max_trim_tokens=0,
        miles_tito="default",
        eos=end,
        marks=_DEEPSEEK_MARKS,
        tool_format=tool_format,
        reasoning_format="deepseek-r1",
    )


FAMILIES: dict[str, Family] = {
    "chatml": Family(
        name="chatml",
        specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        text_stop="<|im_end|>",
        call_stop="<|im_end|>",
        template=_CHATML,
        max_trim_tokens=0,
        miles_tito="default",
    ),
    "delimiter": Family(
        name="delimiter",
        specials=("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
        text_stop="<|user|>",
        call_stop="<|observation|>",
        template=_DELIMITER,
        max_trim_tokens=1,
        miles_tito="glm47",
    ),
    "qwen3": Family(
        name="qwen3",
        specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        text_stop="<|im_end|>",
        call_stop="<|im_end|>",
        template=_family_template(
            opener={
                "system": "<|im_start|>system\\n",
                "user": "<|im_start|>user\\n",
                "assistant": "<|im_start|>assistant\\n",
                "": "<|im_start|>tool\\n",
            },
            closer={"": "<|im_end|>"},
            calls=_CALLS,
            think=_NEWLINES,
            tools_end="<|im_end|>",
            prompt="<|im_start|>assistant\\n",
        ),
        max_trim_tokens=0,
        miles_tito="default",
        marks=(*_THINK, "<tool_call>", "</tool_call>"),
        reasoning_format="qwen3",
    ),
    "deepseek": _deepseek(
        "deepseek",
        "deepseekv3",
        _deepseek_calls("function<｜tool▁sep｜>' + f.name + '\\n```json\\n", "\\n```", "\\n"),
    ),
    "deepseek31": _deepseek("deepseek31", "deepseekv31", _deepseek_calls("' + f.name + '<｜tool▁sep｜>", "", "")),
    "glm": Family(
        name="glm",
        specials=("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
        text_stop="<|user|>",
        call_stop="<|observation|>",
        template=_family_template(
            opener={
                "system": "<|system|>\\n",
                "assistant": "<|assistant|>\\n",
                "tool": "<|observation|>\\n",
                "": "<|user|>\\n",
            },
            closer={},
            calls=_GLM_CALLS,
            think=("<think>", "</think>\n"),
            tools_end="",
            prompt="<|assistant|>\\n",
        ),
        max_trim_tokens=1,
        miles_tito="glm47",
        marks=(*_THINK, "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        tool_format="glm45",
        reasoning_format="glm45",
        think=("<think>", "</think>\n"),
        object_arguments=True,
    ),
    "kimi": Family(
        name="kimi",
        specials=("[EOS]", "<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"),
        text_stop="<|im_end|>",
        call_stop="<|im_end|>",
        template=_family_template(
            opener={
                "system": "<|im_system|>system<|im_middle|>",
                "assistant": "<|im_assistant|>assistant<|im_middle|>",
                "tool": "<|im_system|>tool<|im_middle|>",
                "": "<|im_user|>user<|im_middle|>",
            },
            closer={"": "<|im_end|>"},
            calls=_KIMI_CALLS,
            think=_THINK,
            tools_end="<|im_end|>",
            prompt="<|im_assistant|>assistant<|im_middle|>",
        ),
        max_trim_tokens=0,
        miles_tito="default",
        eos="[EOS]",
        marks=(
            *_THINK, "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
            "<|tool_call_end|>", "<|tool_call_argument_begin|>",
        ),
        tool_format="kimi_k2",
        reasoning_format="kimi_k2",
        think=_THINK,
    ),
}  # fmt: skip
"""`chatml` trims nothing; in `delimiter` a reply's stop token is also the next message's opener. The others spell
thoughts and calls as Qwen 3, DeepSeek R1 (calls as V3 and V3.1 have them), GLM 4.5 and Kimi K2 do."""
