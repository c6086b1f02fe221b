"""An engine that says what it is told to, by the ids of its prompt alone."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from miles_sim.rollout.direct.generate import DirectInput, generate_direct
from miles_sim.rollout.direct.tools import TaggedJsonParser, Tools
from miles_sim.rollout.sample import Sample
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ByteTokenizer

PROMPT = [{"role": "user", "content": "what is 6 x 7?"}]
SPECS = [{"type": "function", "function": {"name": "times", "parameters": {"type": "object"}}}]


@dataclass
class Engine:
    """Answers `/generate` with the reply that is due, from where the prompt leaves off.

    A reply is due by how many were asked for in the prompt; it ends with the stop token. `abort_at`: number of
    requests so far to ids after which that one is aborted. Counters are those of the request.
    """

    tokenizer: ByteTokenizer
    replies: list[str] = field(default_factory=lambda: ["forty-two"])
    abort_at: dict[int, int] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[httpx.Headers] = field(default_factory=list)
    change: Callable[[dict[str, Any]], Any] | None = None
    """Changes the body before it is sent, or gives another one."""
    instead: Callable[[int], httpx.Response | None] | None = None
    """Answers, or raises, in place of the n-th request."""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        number = len(self.asked)
        self.asked.append(json.loads(request.content))
        self.headers.append(request.headers)
        if self.instead is not None and (answer := self.instead(number)) is not None:
            return answer
        body = self.generation(self.asked[-1], number)
        changed = self.change(body) if self.change else None
        return httpx.Response(200, content=json.dumps(body if changed is None else changed))

    def generation(self, asked: dict[str, Any], number: int) -> dict[str, Any]:
        prompt, limit = asked["input_ids"], asked["sampling_params"]["max_new_tokens"]
        opener = self.tokenizer.render([], add_generation_prompt=True)
        places = [n for n in range(len(prompt)) if prompt[n : n + len(opener)] == opener]
        said = len(prompt) - places[-1] - len(opener)
        whole = [*self.tokenizer.encode(self.replies[len(places) - 1]), self.tokenizer.text_stop_id]
        rest = whole[said:]
        reason: dict[str, Any] = {"type": "stop", "matched": self.tokenizer.text_stop_id}
        if number in self.abort_at:
            rest = rest[: self.abort_at[number]]
            reason = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
        elif len(rest) > limit:
            rest, reason = rest[:limit], {"type": "length", "length": limit}
        steps = len(rest)
        return {
            "text": self.tokenizer.decode(rest, skip_special_tokens=True),
            "output_ids": rest,
            "meta_info": {
                "id": f"{number:032x}",
                "finish_reason": reason,
                "prompt_tokens": len(prompt),
                "completion_tokens": len(rest),
                "cached_tokens": number,
                "weight_version": str(number),
                "spec_verify_ct": steps,
                "spec_num_correct_drafts": steps,
                "spec_num_proposed_drafts": 3 * steps,
                "output_token_logprobs": [[-token / 1000, token, None] for token in rest],
            },
        }


@dataclass
class Direct:
    """`await direct(sample, …)` runs `generate_direct` against `engine`; keywords are fields of `DirectInput`."""

    engine: Engine
    settings: RolloutSettings = field(default_factory=lambda: RolloutSettings(speculative_algorithm="EAGLE"))

    async def __call__(self, sample: Sample | None = None, **fields: Any) -> Sample:
        transport = httpx.MockTransport(self.engine)
        async with httpx.AsyncClient(transport=transport) as client:
            values: dict[str, Any] = {
                "settings": self.settings,
                "sample": sample if sample is not None else Sample(index=3, prompt=PROMPT),
                "sampling_params": {"max_new_tokens": 100, "temperature": 1.0},
                "tokenizer": self.engine.tokenizer,
                "engine_url": "http://engine/",
                "client": client,
            }
            return await generate_direct(DirectInput(**{**values, **fields}))


def make(family: str = "chatml") -> Direct:
    return Direct(Engine(ByteTokenizer(family)))


@pytest.fixture
def direct() -> Direct:
    return make()


@pytest.fixture(scope="session")
def directs() -> Callable[..., Direct]:
    """`directs(family)`: one more, for tests that need several."""
    return make


@pytest.fixture(scope="session")
def prompt() -> list[dict[str, Any]]:
    return PROMPT


def call(number: int) -> str:
    return f'so <tool_call>\n{{"name": "times", "arguments": {{"a": {number}, "b": 7}}}}\n</tool_call>'


async def times(name: str, arguments: dict[str, Any]) -> str:
    return str(arguments["a"] * arguments["b"])


@pytest.fixture(scope="session")
def calls() -> Callable[[int], str]:
    """The text of a reply that calls the tool."""
    return call


@pytest.fixture(scope="session")
def tools() -> Callable[..., Tools]:
    """`tools(…)`: one tool that multiplies; keywords are fields of `Tools`."""

    def build(**fields: Any) -> Tools:
        return Tools(**{"specs": SPECS, "parser": TaggedJsonParser(), "execute": times, **fields})

    return build
