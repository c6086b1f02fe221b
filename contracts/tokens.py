"""Tokens: what the trainer sees is what the engine saw and said, id by id."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from miles_sim.ledger import Generation
from miles_sim.targets.observation import SampleView
from miles_sim.tokenizer import ByteTokenizer, built_in
from miles_sim.verify import Case, Recorder, rule
from miles_sim.verify.alignment import Alignment, shared
from miles_sim.verify.lineage import Node
from miles_sim.verify.rule import RolloutCase

from ._struck import EXTRA, forgone, unanswered_end
from ._truth import FINAL, is_cut, mask, trained


@rule(
    "tokens/lengths-agree",
    level="structure",
    reason="Mask, logprobs and replay rows are read by position; a shorter one shifts every later token.",
    source="miles Sample.validate; PRs #861, #1069",
)
def lengths_agree(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """Mask and logprobs have response_length entries, replay arrays a row a transition; the mask is 0 or 1."""
    length = sample.response_length
    see.that(
        0 <= length <= len(sample.tokens),
        "response_length is not within the tokens",
        expected=f"0..{len(sample.tokens)}",
        found=length,
    )
    if sample.loss_mask is not None:
        see.equal(len(sample.loss_mask), length, "length of loss_mask is not response_length")
        see.that(set(sample.loss_mask) <= {0, 1}, "loss_mask holds other than 0 and 1", found=set(sample.loss_mask))
    if sample.rollout_log_probs is not None:
        see.equal(len(sample.rollout_log_probs), length, "length of rollout_log_probs is not response_length")
    for name in ("rollout_routed_experts", "rollout_indexer_topk"):
        rows = getattr(sample, name)
        if rows is not None:
            see.equal(rows.shape[0], len(sample.tokens) - 1, f"{name} has not one row a transition")


@rule(
    "tokens/prompt-is-what-the-engine-got",
    level="alignment",
    reason="Logprobs of a reply are true only behind the very ids that the engine was given.",
    source="design 6.3",
)
def prompt_is_what_the_engine_got(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """The tokens before the response are the ids of a request, exactly as the engine received them."""
    if not sample.tokens or (not rollout.generations and unanswered_end(case, rollout, sample)):
        return
    prompt = sample.tokens[: len(sample.tokens) - sample.response_length]
    asked = any(g.prompt_ids == prompt for g in rollout.generations)
    if see.that(
        asked,
        "the prompt is that of no request",
        expected=f"prompt ids of one of {len(rollout.generations)} generations",
        found="" if asked else _nearest(prompt, rollout.generations),
        tokens=() if asked else range(_agreeing(prompt, rollout.generations), len(prompt)),
    ):
        found = rollout.alignment(sample)
        if found.spans:
            see.equal(found.spans[0].start, len(prompt), "the response does not open with the first turn's reply")


@rule(
    "tokens/response-is-what-it-said",
    level="alignment",
    reason="Ids that the engine never sampled, or sampled elsewhere, are trained with a wrong likelihood.",
    source="design 6.3",
)
def response_is_what_it_said(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """The response is replies and what later requests put between them, and it ends with a reply."""
    if not sample.tokens or unanswered_end(case, rollout, sample):
        return
    found = rollout.alignment(sample)
    see.that(
        found.end == len(sample.tokens),
        "ids at the end come from no generation",
        expected=f"a reply up to {len(sample.tokens)}",
        found=f"the last reply ends at {found.end}" if found.spans else "no reply at all",
        tokens=range(max(found.end, found.response_start), len(sample.tokens)),
    )


@rule(
    "tokens/logprobs-aligned",
    level="alignment",
    reason="A shifted logprob gives the wrong importance ratio to every token behind it.",
    source="SGLang meta_info output_token_logprobs; design 6.3",
)
def logprobs_aligned(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """Each sampled id has the logprob that the engine gave it; all other ids have 0."""
    found = rollout.alignment(sample)
    if not found.spans:
        return
    if not see.that(sample.rollout_log_probs is not None, "rollout_log_probs is missing", found=None):
        return
    stated, shift = sample.rollout_log_probs or (), found.response_start
    for span in found.spans:
        said = stated[max(span.start - shift, 0) : span.end - shift]
        expected = span.generation.logprobs[max(shift - span.start, 0) : span.matched]
        at = shared(said, expected)
        see.that(
            said == expected,
            "logprobs of a reply are not the engine's",
            expected=expected[at : at + 3],
            found=said[at : at + 3],
            detail=f"token {span.start + at}",
            tokens=[span.start + n for n, (a, b) in enumerate(zip(said, expected, strict=False)) if a != b],
        )
    wrong = [at for at in found.unsaid() if stated[at - shift] != 0.0]
    see.that(
        not wrong,
        "ids that nobody sampled have a logprob",
        expected=0.0,
        found=f"{len(wrong)} ids from {wrong[:1]}",
        tokens=wrong,
    )


@rule(
    "tokens/observation-masked",
    level="meaning",
    reason="Training on tool results and templates teaches the model to say what the environment says.",
    source="design 6.3; miles merge_samples",
)
def observation_masked(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """Ids that no generation sampled are masked."""
    found = rollout.alignment(sample)
    trainable = mask(sample)
    unsaid = list(found.unsaid())
    if unsaid:
        wrong = [at for at in unsaid if trainable[at - found.response_start]]
        see.that(
            not wrong,
            "observations are trainable",
            expected="0",
            found=f"{len(wrong)} ids from token {wrong[:1]}",
            tokens=wrong,
        )


@rule(
    "tokens/trainable-exactly-once",
    level="meaning",
    reason="A token lost is training signal thrown away; one trained twice has double weight.",
    source="design 6.3",
)
def trainable_exactly_once(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """Each id sampled on a kept path is trainable in exactly one sample, as far as max_seq_len lets it in.

    A stop token that the next turn's template renders itself may be left out. Of several things that were asked at one
    place a linear session holds the last, and what an agent asked beside its plan may be gone.
    """
    if rollout.view.error is not None or forgone(case, rollout):
        return
    counts = _trainable(rollout)
    kept = {node.step for node in rollout.lineage.kept}
    for node in rollout.lineage.nodes:
        generation = node.generation
        room = _room(case, generation) if node.step in kept else 0
        beside = case.session == "v1" and EXTRA in node.step
        wanted = 0 if beside else room - _given_way(rollout, node)
        times = [counts[generation.id, at] for at in range(len(generation.output_ids))]
        wrong = [
            at for at, count in enumerate(times) if (at < wanted and count != 1) or count > 1 or (at >= room and count)
        ]
        number, positions = _where(rollout, generation, wrong)
        see.that(
            not wrong,
            "sampled ids are not trainable exactly once" if room else "ids of a dropped generation are trainable",
            expected=f"ids 0..{wanted - 1} once" if wanted > 0 else "none",
            found=f"{len(wrong)} ids otherwise, the first is id {wrong[0]}: {times[wrong[0]]} times" if wrong else "",
            detail=f"step {node.step}",
            sample=number,
            tokens=positions,
        )


@rule(
    "tokens/prompt-canonical",
    level="meaning",
    reason="A boundary token that no template would set teaches the model a form that it never meets again.",
    source="miles PRs #949, #1712, #2202 (boundary tokens), #746 (white space that a check passed over)",
)
def prompt_canonical(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """What the engine is asked with is its messages by the family's template: ids at an opening, text later on.

    Keys of a tool's definition may stand in any order: SGLang and miles put them in that of its own model.
    """
    tokenizer = built_in(case.scenario.engine.tokenizer)
    strange: set[str] = set()
    for node in rollout.lineage.nodes:
        exchange, parent = case.exchanges.get(node.generation.id), rollout.lineage.parent(node)
        if node.generation.misbehaved or (parent is not None and parent.step in strange):
            strange.add(node.step)  # what no template writes has no canonical form to go on from
        if exchange is None or not exchange.request.get("messages") or case.scenario.faults:
            continue
        if parent is not None and parent.step in strange:
            continue
        asked = exchange.request
        options = asked.get("chat_template_kwargs")
        ids = tuple(tokenizer.render(asked["messages"], tools=asked.get("tools"), template_options=options))
        found, expected = (_tools_sorted(tokenizer.decode(each)) for each in (node.generation.prompt_ids, ids))
        at = shared(found, expected)
        exact = parent is None and not asked.get("tools")
        see.that(
            node.generation.prompt_ids == ids if exact else found == expected,
            "the prompt is not what the template makes of its messages",
            expected=expected[max(at - 20, 0) : at + 60],
            found=found[max(at - 20, 0) : at + 60],
            detail=f"step {node.step}",
        )


def _tools_sorted(text: str) -> str:
    """`text` with the keys of each tool's definition, a line each, in order, and without a `strict` that is false."""
    return "\n".join(_tool_sorted(line) if line.startswith('{"') else line for line in text.split("\n"))


def _tool_sorted(line: str) -> str:
    try:
        tool = json.loads(line)
    except ValueError:
        return line
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict):
        return line
    if function.get("strict") is False:
        function = {key: value for key, value in function.items() if key != "strict"}
    return json.dumps({**tool, "function": function}, sort_keys=True)


@rule(
    "tokens/dropped-told",
    level="meaning",
    severity="should",
    after={"tokens/trainable-exactly-once"},
    reason="Sampled ids that vanish unseen are compute thrown away, and no plot shows how much.",
    source="design 6.3; miles merge_samples and truncate_samples_by_total_tokens drop later turns without a word",
)
def dropped_told(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """In a line of turns, `metadata["dropped"]` tells by reason of each sampled id that is trained nowhere."""
    if len(rollout.lineage.leaves) != 1 or len(rollout.samples) != 1 or not rollout.alignments[0].spans:
        return
    counts = _trainable(rollout)
    lost = sum(
        not counts[node.generation.id, at]
        for node in rollout.lineage.kept
        for at in range(len(node.generation.output_ids))
    )
    told = rollout.samples[0].metadata.get("dropped") or {}
    stated = sum(reason.get("tokens", 0) for reason in told.values())
    see.equal(stated, lost, "sampled ids that are told as dropped are not those that are trained nowhere")


@rule(
    "tokens/trailing-trim",
    level="meaning",
    reason="A sampled stop token is a decision of the model; dropped without need, it is never trained.",
    source="miles tito max_trim_tokens; design 6.3",
)
def trailing_trim(case: Case, rollout: RolloutCase, see: Recorder) -> None:
    """Only stop tokens that the next turn's template renders itself give way, and the last turn loses nothing."""
    stops = built_in(case.scenario.engine.tokenizer).stop_ids
    lineage = rollout.lineage
    for node in lineage.nodes:
        parent = lineage.parent(node)
        if parent is None:
            continue
        said = parent.generation.output_ids
        lost = said[len(said) - _missing(parent.generation, node.generation) :]
        see.that(
            len(lost) <= rollout.max_trim_tokens and set(lost) <= stops,
            "the next request does not go on from what was said",
            expected=f"at most {rollout.max_trim_tokens} stop tokens give way",
            found=f"{len(lost)} ids: {list(lost[:8])}",
            detail=f"step {node.step}",
        )
    for number, sample, found in trained(rollout):
        last = found.spans[-1]
        see.that(
            last.whole or len(sample.tokens) == case.scenario.max_seq_len,
            "the last turn lost ids at its end",
            expected=f"{len(last.generation.output_ids)} ids",
            found=f"{last.matched} ids",
            detail=f"sample {number}",
        )


@rule(
    "tokens/truncation-at-turn",
    level="meaning",
    reason="A cut answer that passes for a finished one gets the reward of a finished one.",
    source="miles truncate_samples_by_total_tokens; design 6.5, 6.8",
)
def truncation_at_turn(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """Under max_seq_len no sample is longer, and one is truncated if and only if ids were cut or ran into a limit."""
    limit = case.scenario.max_seq_len
    if limit is None:
        return
    found = rollout.alignment(sample)
    see.that(len(sample.tokens) <= limit, "longer than max_seq_len", expected=f"<= {limit}", found=len(sample.tokens))
    if not found.spans:
        return
    reason = str(found.spans[-1].generation.finish_reason.get("type"))
    cut = is_cut(rollout, found)
    expected = "truncated" if cut else FINAL.get(reason, reason)
    see.equal(
        sample.status, expected, "status of a sample that max_seq_len cut" if cut else "status of an uncut sample"
    )


@rule(
    "tokens/text-agrees",
    level="meaning",
    severity="should",
    reason="Reward code reads the text, the trainer the ids; they must be of one answer.",
    source="miles merge_samples (decodes turn by turn)",
)
def text_agrees(case: Case, rollout: RolloutCase, sample: SampleView, see: Recorder) -> None:
    """`response` is the text of the response's ids; asked for directly, stop tokens that ended a reply may be out."""
    found = rollout.alignment(sample)
    if not found.spans:
        return
    tokenizer = built_in(case.scenario.engine.tokenizer)
    edges = sorted({found.response_start, found.length, *(edge for s in found.spans for edge in (s.start, s.end))})
    pieces = [sample.tokens[start:end] for start, end in pairwise(edges)]
    whole = tokenizer.decode(sample.tokens[found.response_start :])
    allowed = [whole, "".join(tokenizer.decode(piece) for piece in pieces)]
    if case.session == "direct":
        allowed += _without_stops(tokenizer, sample.tokens, found)
    see.that(sample.response in allowed, "the text is not that of the ids", expected=whole, found=sample.response)


def _without_stops(tokenizer: ByteTokenizer, tokens: Sequence[int], found: Alignment) -> Iterator[str]:
    """The text less the last reply's stop token, and less that of each: `/generate` gives its text without."""
    ends = [span.end for span in found.spans if span.matched and tokens[span.end - 1] in tokenizer.stop_ids]
    for left_out in ([end for end in ends if end == found.length], ends):
        kept = [token for at, token in enumerate(tokens) if at >= found.response_start and at + 1 not in left_out]
        yield tokenizer.decode(kept)


def _nearest(prompt: tuple[int, ...], generations: tuple[Generation, ...]) -> str:
    best = _agreeing(prompt, generations)
    return f"{len(prompt)} ids, of which the first {best} agree with a request"


def _agreeing(prompt: tuple[int, ...], generations: tuple[Generation, ...]) -> int:
    return max((shared(g.prompt_ids, prompt) for g in generations), default=0)


def _where(rollout: RolloutCase, generation: Generation, wrong: Sequence[int]) -> tuple[int | None, list[int]]:
    """The last sample that holds this generation, and the places there of its ids `wrong`."""
    if wrong:
        for number in reversed(range(len(rollout.samples))):
            for span in rollout.alignments[number].spans:
                if span.generation.id == generation.id:
                    return number, [span.start + at for at in wrong if at < span.matched]
    return None, []


def _trainable(rollout: RolloutCase) -> Counter[tuple[str, int]]:
    """(generation id, position in its output) to the number of samples that train it."""
    counts: Counter[tuple[str, int]] = Counter()
    for _, sample, found in trained(rollout):
        trainable = mask(sample)
        for span in found.spans:
            first = max(span.start, found.response_start)
            of_span = trainable[first - found.response_start : span.end - found.response_start]
            name, at = span.generation.id, first - span.start
            counts.update((name, position) for position, told in enumerate(of_span, start=at) if told)
    return counts


def _room(case: Case, generation: Generation) -> int:
    """How many of its ids `max_seq_len` lets in."""
    said, limit = len(generation.output_ids), case.scenario.max_seq_len
    return said if limit is None else max(0, min(said, limit - len(generation.prompt_ids)))


def _given_way(rollout: RolloutCase, node: Node) -> int:
    """How many ids at its end a request that continues it does not repeat, up to what the tokenizer allows."""
    missing = [_missing(node.generation, child.generation) for child in rollout.lineage.children[node.step]]
    return min(max(missing, default=0), rollout.max_trim_tokens)


def _missing(parent: Generation, child: Generation) -> int:
    """How many ids of `parent`'s output, at its end, are not in `child`'s prompt."""
    said, start = parent.output_ids, len(parent.prompt_ids)
    if child.prompt_ids[:start] != parent.prompt_ids:
        return len(said)
    return len(said) - shared(said, child.prompt_ids[start : start + len(said)])
