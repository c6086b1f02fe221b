"""Engine: the ledger agrees with itself, so that it can be taken for the truth."""

from collections.abc import Mapping
from typing import Any

from miles_sim.ledger import Generation, Ledger
from miles_sim.tokenizer import built_in
from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.engine_schemas import counted_keys, meta_info, response_schema
from miles_sim.verify.shape import faults

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
    vocabulary = built_in(case.scenario.engine.tokenizer).vocab_size
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
    "engine/determinism",
    level="structure",
    reason="A failure that cannot be played again cannot be mended.",
    source="design section 4: two runs of a seed give the same bytes",
)
def determinism(case: Case, see: Recorder) -> None:
    """The same play once more gives the same generations: ids, logprobs, names, counters."""
    if case.second is not None and case.scenario.replayed == "alike":
        _see_same(case.ledger, case.second.ledger, see, without=frozenset())


@rule(
    "engine/concurrency-order-free",
    level="structure",
    reason="A reply that depends on who asked first makes every comparison a matter of luck.",
    source="design section 4: a reply is a function of seed, question and attempt",
)
def concurrency_order_free(case: Case, see: Recorder) -> None:
    """Agents one after the other are answered as they were all at once; but for what the prefix cache holds."""
    if case.second is not None and case.scenario.replayed == "one_by_one":
        _see_same(case.ledger, case.second.ledger, see, without=frozenset({"cached_tokens"}))


@rule(
    "engine/keys-per-profile",
    level="structure",
    reason="Counters that come under names of no release are read as if there were none.",
    source="fixtures/wire: the keys of each release, from its own code; design section 4",
)
def keys_per_profile(case: Case, see: Recorder) -> None:
    """Each answer has its release's keys and types, and its numbers are the ledger's."""
    profile = case.scenario.engine.profile
    for generation in case.ledger.generations:
        exchange = case.exchanges.get(generation.id)
        if exchange is None:
            continue
        where = f"generation {generation.id}"
        told = [*faults(response_schema(profile, exchange.path), exchange.response)]
        see.that(not told, f"an answer is not as {profile} gives it", found="; ".join(told[:3]), detail=where)
        meta = meta_info(exchange.path, exchange.response)
        if meta is not None:
            see.equal(*_numbers(profile, generation, meta), "numbers of an answer", where)


def _numbers(profile: str, generation: Generation, meta: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the answer says under the names of its release, and what is true."""
    true: dict[str, Any] = {
        "prompt_tokens": len(generation.prompt_ids),
        "completion_tokens": len(generation.output_ids),
        "cached_tokens": generation.cached_tokens,
    }
    spec = generation.spec
    if spec is not None and spec.verify_ct:
        true |= {"accepted": spec.accepted, "drafted": spec.drafted, "verify_ct": spec.verify_ct}
    names = {key: value for key, value in counted_keys(profile).items() if value in true}
    queued = "prompt_tokens" not in meta  # aborted while it waited: a release says next to nothing of it
    expected = {key: true[value] for key, value in names.items() if not queued}
    return {key: meta.get(key) for key in expected}, expected


def _see_same(one: Ledger, other: Ledger, see: Recorder, *, without: frozenset[str]) -> None:
    left, right = ({g.id: g.model_dump(exclude=set(without)) for g in ledger.generations} for ledger in (one, other))
    see.equal(sorted(right), sorted(left), "generations of the second play")
    for name in sorted(left.keys() & right.keys()):
        wrong = [field for field in left[name] if left[name][field] != right[name][field]]
        see.equal(wrong, [], "fields that differ in the second play", f"generation {name}")


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


@rule(
    "engine/prefix-left-reusable",
    level="structure",
    reason="Logprobs of a prompt are computed anew from their start on: a start of 0 throws the prefix cache away.",
    source="miles PR #656; SGLang logprob_start_len: what stands behind it is not taken from the cache",
)
def prefix_left_reusable(case: Case, see: Recorder) -> None:
    """No request for a reply asks for logprobs of its prompt, but for those of its last id."""
    for generation in case.ledger.generations:
        exchange = case.exchanges.get(generation.id)
        if exchange is None:
            continue
        start = exchange.request.get("logprob_start_len")
        least = len(generation.prompt_ids) - 1
        see.that(
            start is None or start == -1 or (type(start) is int and start >= least),
            "a request asks for logprobs of its prompt",
            expected=f"none, -1 or at least {least}",
            found=start,
            detail=f"generation {generation.id}",
        )


def _most_cached(case: Case, generation: Generation) -> int:
    """The last prompt id is always computed anew, since its logits are needed."""
    return max(0, len(generation.prompt_ids) - 1) if case.scenario.engine.prefix_cache else 0
