"""JSON joined from pieces is the JSON of the objects it stands for."""

import json
from random import Random

import orjson
import pytest

from miles_sim.engine.fragments import Fragments, numbers
from miles_sim.engine.wire import token_texts


@pytest.mark.parametrize("count", [0, 1, 2, 300])
@pytest.mark.parametrize("family", ["chatml", "delimiter"])
def test_the_bytes_are_those_of_the_objects(family: str, count: int) -> None:
    texts, random = token_texts(family), Random(count)
    ids = [random.randrange(len(texts.text)) for _ in range(count)]
    logprobs = [random.choice((-0.0, -1e-06, -2.999999, -1.0, -random.random())) for _ in ids]
    pairs = list(zip(ids, logprobs, strict=True))
    for fragments, spelled in ((texts.fragments, texts.bytes), (texts.raw_fragments, texts.raw)):
        content = [
            {"token": texts.text[i], "bytes": spelled[i], "logprob": logprob, "top_logprobs": []}
            for i, logprob in pairs
        ]
        spelt = numbers(logprobs)
        assert fragments.content(ids, spelt) == orjson.dumps(content)
        for text in (True, False):
            triples = [[logprob, i, texts.text[i] if text else None] for i, logprob in pairs]
            assert fragments.triples(ids, spelt, texts=text) == orjson.dumps(triples)


def test_texts_that_need_escaping_are_escaped() -> None:
    fragments = Fragments(['"\\\n', "\u2028�"], [[34, 92, 10], [226]])
    told = json.loads(fragments.content([1, 0], [b"-0.5", b"-1.5"]))
    assert [entry["token"] for entry in told] == ["\u2028�", '"\\\n']


def test_ids_and_logprobs_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 and 1"):
        token_texts("chatml").fragments.content([1, 2], [b"-0.5"])
