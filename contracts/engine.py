"""Engine: the ledger agrees with itself, so that it can be taken for the truth."""

from miles_sim.ledger import Generation
from miles_sim.tokenizer import ByteTokenizer
from miles_sim.verify import Case, Recorder, rule

_REASON = "Every other contract takes its expectations from here."
_DUE_ON_CHAT = ("input_ids", "logprobs", "return_meta_info")


@rule(
    "engine/arithmetic",
    level="structure",
    reason=_REASON,
    source="SGLang speculative counters: histogram, verify steps, proposed = steps x (draft tokens - 1)",
)
def arithmetic(case: Case, see: Recorder) -> None:
    """Histogram, accepted and drafted counts, verify steps and completion tokens follow from one another."""
    speculative = case.scenario.engine.speculative
    for generation in case.ledger.generations:
        spec, where = generation.spec, f"generation {generation.id}"
        see.equal(spec is not None, speculative is not None, "speculative counters go with speculative decoding", where)
        if spec is None or speculative is None:
            continue
        accepted = sum(k * steps for k, steps in enumerate(spec.histogram))
        see.equal(sum(spec.histogram), spec.verify_ct, "histogram does not sum to the verify steps", where)
        see.equal(accepted, spec.accepted, "histogram does not give the accepted drafts", where)
        see.equal(spec.drafted, spec.verify_ct * (speculative.draft_tokens - 1), "drafts are not steps x length", where)
        most = 1 + spec.accepted + spec.verify_ct
        see.that(
            len(generation.output_ids) <= most,
            "more ids than the verify steps can give",
            expected=f"<= {most}",
            found=len(generation.output_ids),
            detail=where,
        )


@rule("engine/replies-agree", level="structure", reason=_REASON, source="design section 4")
def replies_agree(case: Case, see: Recorder) -> None:
    """Ids, logprobs, cached tokens and vocabulary of each generation agree."""
    vocabulary = ByteTokenizer(case.scenario.engine.tokenizer).vocab_size
    for generation in case.ledger.generations:
        where = f"generation {generation.id}"
        see.equal(len(generation.logprobs), len(generation.output_ids), "one logprob an id", where)
        see.that(all(value <= 0 for value in generation.logprobs), "a logprob is above 0", detail=where)
        see.that(
            all(0 <= token < vocabulary for token in generation.output_ids),
            "an id outside the vocabulary",
            expected=f"0..{vocabulary - 1}",
            found=max(generation.output_ids, default=0),
            detail=where,
        )
        most = _most_cached(case, generation)
        see.that(
            0 <= generation.cached_tokens <= most,
            "more cached tokens than the prompt can have",
            expected=f"0..{most}",
            found=generation.cached_tokens,
            detail=where,
        )


@rule(
    "engine/response-ids-unique",
    level="structure",
    reason="The id joins agent turns, ledger and samples.",
    source="design section 4",
)
def response_ids_unique(case: Case, see: Recorder) -> None:
    """No two generations have one id."""
    ids = [generation.id for generation in case.ledger.generations]
    if ids:
        see.equal(len(set(ids)), len(ids), "number of distinct response ids")


@rule(
    "engine/request-arrives-whole",
    level="structure",
    reason="An engine that never saw the ids samples from a prompt of its own, and says nothing of its tokens.",
    source="sglang-router 0.3.2 drops what its request model does not know (docs/router.md)",
)
def request_arrives_whole(case: Case, see: Recorder) -> None:
    """Chat requests reach the engine with the ids, and with what asks for tokens, logprobs and counters.

    What opens a conversation may be left to the engine's template, where the ids that come of it are asked back.
    """
    opening = {turn.response_id for turn in case.ledger.turns if turn.parent is None}
    for generation in case.ledger.generations:
        if generation.endpoint == "chat":
            asked_back = generation.id in opening and "return_prompt_token_ids" in generation.asked
            for field in _DUE_ON_CHAT[1:] if asked_back else _DUE_ON_CHAT:
                see.that(
                    field in generation.asked,
                    f"{field} did not arrive at the engine: the session server or a router on the way dropped it",
                    expected=_DUE_ON_CHAT,
                    found=generation.asked,
                    detail=f"generation {generation.id}",
                )


def _most_cached(case: Case, generation: Generation) -> int:
    """The last prompt id is always computed anew, since its logits are needed."""
    return max(0, len(generation.prompt_ids) - 1) if case.scenario.engine.prefix_cache else 0
