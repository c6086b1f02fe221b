"""From a generation, finished or under way, to the `meta_info` that a release tells of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import orjson

from miles_sim.engine.clock import Timing
from miles_sim.engine.experts import payload
from miles_sim.engine.finish import Trim
from miles_sim.engine.flight import Answered, Flight, Reason, Step
from miles_sim.engine.fragments import Fragments, numbers
from miles_sim.engine.logprobs import Place, place_draws, prompt_logprobs
from miles_sim.engine.profiles import Profile
from miles_sim.engine.prompt import Prompt
from miles_sim.engine.sampling import Sampling
from miles_sim.tokenizer import FIRST_PIECE, ByteTokenizer


class TokenTexts:
    """The text of each single id, as `output_token_logprobs` and `logprobs.content` spell it."""

    def __init__(self, tokenizer: ByteTokenizer) -> None:
        self.text = [tokenizer.decode([i]) for i in range(tokenizer.vocab_size)]
        self.bytes = [list(text.encode()) for text in self.text]
        """Of the text that is shown; of a byte that is no whole character, those of U+FFFD."""
        self.raw = [[i] if i < FIRST_PIECE else shown for i, shown in enumerate(self.bytes)]
        """Of the token itself."""
        self.fragments = Fragments(self.text, self.bytes)
        self.raw_fragments = Fragments(self.text, self.raw)


@lru_cache(maxsize=8)
def token_texts(family: str) -> TokenTexts:
    """The texts of a built-in family, made once."""
    return TokenTexts(ByteTokenizer(family))


@dataclass(frozen=True)
class Wire:
    """All that the shape of an answer hangs on, apart from the request."""

    profile: Profile
    tokenizer: ByteTokenizer
    texts: TokenTexts
    seed: int = 0
    metrics: bool = False
    cache_report: bool = False
    incremental: bool = False
    """Streams of `/generate` tell what is new (`incremental_streaming`)."""

    @cached_property
    def counts_thoughts(self) -> bool:
        """The release counts the ids of a thought."""
        return any(entry.key == "reasoning_tokens" for entry in self.profile.meta_info)

    def trim(self, sampling: Sampling) -> Trim:
        return Trim(sampling.no_stop_trim, sampling.skip_special_tokens, self.profile.finish.behind_stop_string)


@dataclass(frozen=True)
class Want:
    """What the answer to one request shall tell beside the reply."""

    logprobs: bool = False
    logprob_start: int = -1
    """First prompt id whose logprob is told; -1: of none."""
    top_logprobs: int = 0
    token_ids: tuple[int, ...] | None = None
    """Ids whose logprob is told at every place."""
    texts: bool = False
    """Logprobs come with the text of their ids."""
    routed_experts: bool = False
    routed_experts_start: int = 0
    indexer_topk: bool = False
    prompt_token_ids: bool = False
    think_end: int | None = None
    """The id that ends a thought; None: nothing is thought, or not counted."""

    @cached_property
    def conditions(self) -> frozenset[str]:
        """Those of the profile's keys that hang on the request."""
        asked = {
            "logprobs": self.logprobs,
            "top_logprobs": self.top_logprobs > 0,
            "token_ids_logprobs": self.token_ids is not None,
            "routed_experts": self.routed_experts,
            "indexer_topk": self.indexer_topk,
        }
        return frozenset(name for name, wanted in asked.items() if wanted)


class Progress(NamedTuple):
    """What is known of a request: all of it, or as far as it has come."""

    id: str
    prompt: Prompt
    output_ids: Sequence[int]
    logprobs: Sequence[float]
    cached_tokens: int
    weight_version: str
    retractions: int
    timing: Timing
    answered: Answered | None = None
    start: int = 0
    """Output ids and logprobs are told from here on."""
    sent: bool = True
    """Nothing was told of it before."""

    @property
    def reason(self) -> Reason | None:
        return None if self.answered is None else self.answered.finish_reason


def finished(answered: Answered) -> Progress:
    """All of a request."""
    return Progress(
        id=answered.id,
        prompt=answered.asked.prompt,
        output_ids=answered.output_ids,
        logprobs=answered.logprobs,
        cached_tokens=answered.cached_tokens,
        weight_version=answered.weight_version,
        retractions=answered.retractions,
        timing=answered.timing,
        answered=answered,
    )


def stepped(flight: Flight, step: Step, weight_version: str, *, start: int = 0) -> Progress:
    """A request as far as this step; `weight_version`: the engine's. `start`: see `Progress`."""
    if step.answered is not None:
        return finished(step.answered)._replace(start=start, sent=step.start == 0)
    return Progress(
        id=flight.id,
        prompt=flight.asked.prompt,
        output_ids=step.ids,
        logprobs=step.logprobs,
        cached_tokens=flight.cached_tokens,
        weight_version=weight_version,
        retractions=flight.retractions,
        timing=Timing(max(flight.started - flight.arrived, 0), flight.first_token, flight.first_token),
        start=start,
        sent=step.start == 0,
    )


def meta_info(
    wire: Wire, want: Want, known: Progress, *, reason: Reason | None = None, triples: bytes | None = None
) -> dict[str, Any]:
    """`meta_info` in the profile's keys and order. `reason` stands in place of the generation's own; `triples`:
    `output_token_logprobs`, where somebody has them already."""
    holds = set(want.conditions)
    values = _basics(known, want)
    if reason is not None:
        values["finish_reason"] = reason
    if known.sent:
        holds.add("sent")
        values["sent_at"] = known.timing.sent_at
    if wire.metrics:
        holds |= {"metrics", "decoded"} if known.timing.decode_throughput else {"metrics"}
        values |= _timings(known)
    if known.answered is not None:
        holds |= _finished(values, want, known.answered)
        holds.difference_update(name for name in _ROWS if values.get(name) is None)
    if want.logprobs:
        values |= _logprobs(wire, want, known, triples)
    return {key: values[value] for key, value in wire.profile.layout(frozenset(holds))}


_ROWS = ("routed_experts", "indexer_topk")


def _basics(known: Progress, want: Want) -> dict[str, Any]:
    return {
        "id": known.id,
        "finish_reason": known.reason,
        "prompt_tokens": known.prompt.size,
        "weight_version": known.weight_version,
        "retractions": known.retractions,
        "running": 0,
        "waiting": 0,
        "completion_tokens": len(known.output_ids),
        "reasoning_tokens": thought_tokens(known.output_ids, want),
        "cached_tokens": known.cached_tokens,
        "cached_tokens_details": cached_details(known.cached_tokens),
        "dp_rank": None,
    }


def thought_tokens(output_ids: Sequence[int], want: Want) -> int:
    """Ids of the thought, its end included (schedule_batch.py `update_reasoning_tokens`)."""
    if want.think_end is None:
        return 0
    return next((n for n, token in enumerate(output_ids, start=1) if token == want.think_end), len(output_ids))


def _timings(known: Progress) -> dict[str, Any]:
    timing, rate = known.timing, known.timing.decode_throughput
    return {
        "received_at": timing.at(0),
        "started_at": timing.at(timing.started),
        "first_token_at": timing.at(timing.first_token),
        "finished_at": timing.at(timing.finished),
        "queue_time": timing.queue_time,
        "launch_delay": 0.0,
        "prefill_time": (timing.first_token - timing.started) / 1_000_000,
        "inference_time": (timing.finished - timing.started) / 1_000_000,
        "first_token_latency": timing.first_token_latency,
        "decode_throughput": (len(known.output_ids) - 1) * rate if rate else None,
    }


def _finished(values: dict[str, Any], want: Want, answered: Answered) -> set[str]:
    """Adds what is told once all is over; gives the conditions that hold with it."""
    spec = answered.spec
    holds = {"finished"}
    values["e2e_latency"] = answered.timing.latency
    values["weight_versions"] = weight_spans(answered)
    if answered.from_queue:
        return holds | {"queue_abort"}
    if spec is not None:
        ran = spec.verify_ct > 0
        holds.add("speculative" if ran else "idle")
        values |= {
            "accept_rate": spec.accepted / spec.drafted if ran else 0.0,
            "accept_length": len(answered.output_ids) / spec.verify_ct if ran else 0,
            "accepted": spec.accepted,
            "drafted": spec.drafted,
            "verify_ct": spec.verify_ct,
            "histogram": list(spec.histogram),
        }
    if want.routed_experts:
        values["routed_experts"] = routed_experts(answered, want.routed_experts_start)
    if want.indexer_topk and answered.indexer_topk is not None:
        values["indexer_topk"] = payload(answered.indexer_topk, (*answered.prompt_ids, *answered.output_ids))
    return holds


def routed_experts(answered: Answered, start: int) -> str | None:
    """The rows from prompt id `start` on, as they are sent; None for a model without experts."""
    if answered.routed_experts is None:
        return None
    return payload(answered.routed_experts, (*answered.prompt_ids, *answered.output_ids), start=start)


def weight_spans(answered: Answered) -> list[dict[str, Any]]:
    """Which output ids came from which weights."""
    if not answered.weight_versions:
        return [{"version": answered.weight_version, "start": 0, "end": len(answered.output_ids)}]
    return [{"version": s.version, "start": s.start, "end": s.end} for s in answered.weight_versions]


def spec_details(answered: Answered) -> dict[str, Any] | None:
    """`spec_tokens_details` (protocol.py); None where no verify step ran."""
    spec = answered.spec
    if spec is None or not spec.verify_ct:
        return None
    return {
        "spec_accept_rate": spec.accepted / spec.drafted,
        "spec_accept_length": len(answered.output_ids) / spec.verify_ct,
        "spec_cap_length": 0.0,
        "spec_block_accept_length": 0.0,
        "spec_num_correct_drafts": spec.accepted,
        "spec_num_proposed_drafts": spec.drafted,
        "spec_verify_ct": spec.verify_ct,
        "spec_correct_drafts_histogram": list(spec.histogram),
        "spec_cap_lens_histogram": [],
    }


def cached_details(cached_tokens: int) -> dict[str, int] | None:
    """Where cached ids lay: all on the device, there being no other tier (output_streamer.py)."""
    return {"device": cached_tokens, "host": 0} if cached_tokens else None


Triple = list[Any]
"""[logprob, id, text]; text is null where none was asked for."""


def _logprobs(wire: Wire, want: Want, known: Progress, triples: bytes | None) -> dict[str, Any]:
    if triples is None:
        ids = known.output_ids[known.start :] if known.start else known.output_ids
        triples = wire.texts.fragments.triples(ids, numbers(known.logprobs[known.start :]), texts=want.texts)
    start = _input_start(wire, want, known.prompt.size)
    values: dict[str, Any] = {
        "input_token_logprobs": [] if start is None else _input(wire, want, known.prompt, start),
        "output_token_logprobs": orjson.Fragment(triples),
    }
    if want.top_logprobs or want.token_ids is not None:
        prompt, output = (
            _prompt_places(wire, known, start),
            _output_places(wire, known.prompt.ids, known.output_ids, known.logprobs)[known.start :],
        )
        for name, chosen in (("top", want.top_logprobs or None), ("token_ids", want.token_ids)):
            if chosen is not None:
                values[f"input_{name}_logprobs"] = [place and _row(wire, want, place, chosen) for place in prompt]
                values[f"output_{name}_logprobs"] = [_row(wire, want, place, chosen) for place in output]
    return values


def top_rows(
    wire: Wire, count: int, prompt_ids: Sequence[int], output_ids: Sequence[int], logprobs: Sequence[float]
) -> list[list[Triple]]:
    """The `count` likeliest ids at each output id, with their texts."""
    places = _output_places(wire, prompt_ids, output_ids, logprobs)
    return [_row(wire, Want(texts=True), place, count) for place in places]


def _input_start(wire: Wire, want: Want, prompt_tokens: int) -> int | None:
    """First prompt id that has an entry among the input logprobs; None: none has."""
    if want.logprob_start >= 0:
        return want.logprob_start
    return prompt_tokens - 1 if wire.profile.generate.default_input_logprobs == "last" else None


def _input(wire: Wire, want: Want, prompt: Prompt, start: int) -> list[Triple]:
    """The first entry has no logprob, wherever it starts (logprob_result_processor.py)."""
    text = wire.texts.text if want.texts else None
    if start == prompt.size - 1:
        last = prompt.given[-1]
        return [[None, last, text[last] if text else None]]
    logprobs = prompt_logprobs(prompt.ids, start=start, seed=wire.seed)
    return [
        [logprob if n else None, token, text[token] if text else None]
        for n, (logprob, token) in enumerate(zip(logprobs, prompt.ids[start:], strict=True))
    ]


def _prompt_places(wire: Wire, known: Progress, start: int | None) -> list[Place | None]:
    """The distributions at the prompt ids from `start` on, the first of which has none; no `start`: no places."""
    if start is None:
        return []
    prompt_ids, size = known.prompt.ids, wire.tokenizer.vocab_size
    draws = place_draws(prompt_ids, start=start, seed=wire.seed)
    logprobs = prompt_logprobs(prompt_ids, start=start, seed=wire.seed)
    return [
        Place(token, logprob, draw, size) if n and logprob is not None else None
        for n, (token, logprob, draw) in enumerate(zip(prompt_ids[start:], logprobs, draws, strict=True))
    ]


def _output_places(
    wire: Wire, prompt_ids: Sequence[int], output_ids: Sequence[int], logprobs: Sequence[float]
) -> list[Place]:
    size = wire.tokenizer.vocab_size
    draws = place_draws((*prompt_ids, *output_ids), start=len(prompt_ids), seed=wire.seed)
    sampled = zip(output_ids, logprobs, draws, strict=True)
    return [Place(token, logprob, draw, size) for token, logprob, draw in sampled]


def _row(wire: Wire, want: Want, place: Place, chosen: int | tuple[int, ...]) -> list[Triple]:
    text = wire.texts.text if want.texts else None
    pairs = place.top(chosen) if isinstance(chosen, int) else [(place.logprob(token), token) for token in chosen]
    return [[logprob, token, text[token] if text else None] for logprob, token in pairs]
