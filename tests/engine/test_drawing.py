"""The short way to a reply that nothing but its bound ends gives what the long way gives."""

from hypothesis import given
from hypothesis import strategies as st

from miles_sim.engine.drawing import Model
from miles_sim.engine.profiles import load
from miles_sim.engine.prompt import Prompt
from miles_sim.engine.sampling import Sampling
from miles_sim.engine.settings import EngineSettings
from miles_sim.reply import Reply
from miles_sim.tokenizer import FAMILIES, ByteTokenizer

FAR = 10_000_000
"""An id that no reply has: with it as a stop token, a reply is looked through for stop tokens."""


@given(
    family=st.sampled_from(sorted(FAMILIES)),
    tokens=st.integers(0, 90),
    limit=st.one_of(st.none(), st.integers(0, 90)),
    context=st.integers(16, 96),
    said=st.sampled_from(
        [{}, {"text": "Yes."}, {"reasoning": 3}, {"abort_after": 2}, {"tool_calls": [{"name": "look"}]}]
    ),
    key=st.binary(min_size=16, max_size=16),
)
def test_a_reply_that_is_not_looked_through_is_the_one_that_is(
    family: str, tokens: int, limit: int | None, context: int, said: dict[str, object], key: bytes
) -> None:
    reply = Reply.model_validate({"tokens": tokens, **said})
    settings = EngineSettings(tokenizer=family, context_length=context, default_reply=reply)
    model = Model(settings, load(settings.profile), ByteTokenizer(family), seed=0)
    prompt = Prompt((5, 6, 7), "go")
    plain, searched = (
        model.draw(prompt, Sampling(max_new_tokens=limit, stop_token_ids=stops), key, 0) for stops in ((), (FAR,))
    )
    assert plain._replace(logprobs=()) == searched._replace(logprobs=())
    assert [*plain.logprobs] == [*searched.logprobs]


def test_a_reply_ends_where_the_kv_cache_is_full() -> None:
    settings = EngineSettings(cache_tokens=64, default_reply=Reply(tokens=100))
    model = Model(settings, load(settings.profile), ByteTokenizer("chatml"), seed=0)
    drawn = model.draw(Prompt(tuple(range(40)), "go"), Sampling(max_new_tokens=100), b"k" * 16, 0)
    assert (len(drawn.output_ids), drawn.finish_reason) == (22, {"type": "length", "length": 22})
