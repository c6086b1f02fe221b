"""The simulator's own: a ledger that contradicts itself."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from miles_sim.engine import prefix_cache, scheduler, seeding
from miles_sim.rollout.session import upstream

from .defect import defect


@defect("linear/v1", "engine/arithmetic")
def bonus_ids_count_as_drafts(m: pytest.MonkeyPatch) -> None:
    """The simulator's own: accepted counts the bonus id of each step."""
    truth = scheduler.truth

    def with_bonus(steps: Sequence[int], settings: Any) -> Any:
        right = truth(steps, settings)
        return right.model_copy(update={"accepted": right.accepted + right.verify_ct})

    m.setattr(scheduler, "truth", with_bonus)


@defect("linear/v1", "engine/replies-agree")
def whole_prompts_are_cached(m: pytest.MonkeyPatch) -> None:
    """The simulator's own: not even the last prompt id is computed."""
    m.setattr(prefix_cache.PrefixCache, "cached", lambda self, prompt, **rest: len(prompt))


@defect("linear/v1", "engine/request-arrives-whole")
def router_drops_input_ids(m: pytest.MonkeyPatch) -> None:
    """A router between session server and engine passes on only what its request model knows."""
    answer = upstream.Upstream._answer

    async def without_ids(self: upstream.Upstream, call: upstream.Call) -> upstream.Answer:
        body = {key: value for key, value in orjson.loads(call.body).items() if key != "input_ids"}
        return await answer(self, replace(call, body=orjson.dumps(body)))

    m.setattr(upstream.Upstream, "_answer", without_ids)


@defect("linear/v1", "engine/response-ids-unique")
def replies_have_one_id(m: pytest.MonkeyPatch) -> None:
    """The simulator's own: the id does not depend on what was asked."""
    m.setattr(seeding, "names_key", lambda key, engine: bytes(16))
