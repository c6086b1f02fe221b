"""Cases made by hand: a ledger of a few ids, and the observation that a right implementation would show."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from miles_sim.ledger import Generation, Ledger, SpecTruth, Turn
from miles_sim.scenarios.model import Scenario
from miles_sim.targets.base import CAPABILITIES
from miles_sim.targets.observation import (
    BatchView,
    Counters,
    Error,
    Observation,
    PrefixCache,
    RolloutView,
    SampleView,
    ShardView,
)
from miles_sim.tokenizer import ByteTokenizer
from miles_sim.verify import Case
from miles_sim.verify.lineage import Lineage, Node, lineage

DRAFT_TOKENS = 4
SPECULATIVE = {"draft_tokens": DRAFT_TOKENS}


@dataclass(frozen=True)
class Asked:
    """One request: `said` follows the parent's ids, `replied` is sampled."""

    step: str
    said: str
    replied: str | None
    """None: the stop token alone, for which no verify step runs."""
    parent: str | None = None
    retry_of: str | None = None
    finish: str = "stop"
    status: int = 200


LINE = (Asked("1", "hello", "one,"), Asked("2", "and", "two.", parent="1"))


def make(
    asked: Sequence[Asked] = LINE,
    *,
    session: str = "v2",
    speculative: bool = True,
    family: str = "chatml",
    **scenario: Any,
) -> Case:
    """A case that passes every contract. `scenario`: fields beside the plan, and `steps` of the plan."""
    steps = scenario.pop("steps", [{"do": "say"}])
    document = Scenario.model_validate(
        {
            "name": "made",
            "title": "made by hand",
            "engine": {"speculative": SPECULATIVE if speculative else None, "tokenizer": family},
            "plan": {"steps": steps, "returns": {"reward": 1.0, "note": "done"}},
            **scenario,
        }
    )
    stop = ByteTokenizer(family).text_stop_id
    turns: list[Turn] = []
    generations: list[Generation] = []
    for rollout in range(len(document.rollouts)):
        made: dict[str | None, Generation] = {}
        for number, ask in enumerate(() if _rejected(document, rollout, session) else asked):
            if ask.status == 200:
                made[ask.step] = _generation(ask, made.get(ask.parent), rollout, number, speculative, stop)
            turns.append(_turn(ask, rollout, made.get(ask.step)))
        generations += list(made.values())
    ledger = Ledger(generations=tuple(generations), turns=tuple(turns))
    observation = _observe(document, ledger, session)
    return Case(document, session, ledger, observation, frozenset(CAPABILITIES))  # type: ignore[arg-type]


def change(case: Case, rollout: int = 0, sample: int = 0, **fields: Any) -> Case:
    """The case with fields of one sample replaced."""
    view = case.observation.rollouts[rollout]
    samples = list(view.samples)
    samples[sample] = samples[sample].model_copy(update=fields)
    return change_rollout(case, rollout, samples=tuple(samples))


def change_rollout(case: Case, rollout: int = 0, **fields: Any) -> Case:
    """The case with fields of one rollout's view replaced."""
    views = list(case.observation.rollouts)
    views[rollout] = views[rollout].model_copy(update=fields)
    return observe(case, rollouts=tuple(views))


def observe(case: Case, **fields: Any) -> Case:
    """The case with fields of the observation replaced."""
    return replace(case, observation=case.observation.model_copy(update=fields))


def change_batch(case: Case, **fields: Any) -> Case:
    return observe(case, batch=case.observation.batch.model_copy(update=fields))  # type: ignore[union-attr]


def change_generation(case: Case, number: int = 0, **fields: Any) -> Case:
    """The case with fields of one generation replaced in the ledger."""
    generations = list(case.ledger.generations)
    generations[number] = generations[number].model_copy(update=fields)
    return replace(case, ledger=case.ledger.model_copy(update={"generations": tuple(generations)}))


def _generation(
    ask: Asked, parent: Generation | None, rollout: int, number: int, speculative: bool, stop: int
) -> Generation:
    before = parent.prompt_ids + parent.output_ids if parent else ()
    text = "" if ask.replied is None else f"{rollout}{ask.replied}"
    output = tuple(text.encode()) + ((stop,) if ask.finish == "stop" else ())
    steps = -(-max(len(output) - 1, 0) // DRAFT_TOKENS)
    spec = SpecTruth(
        accepted=steps * 3, drafted=steps * 3, verify_ct=steps, histogram=(0, 0, 0, steps) if steps else ()
    )
    prompt = before + tuple(ask.said.encode())
    return Generation(
        id=f"{rollout}-{ask.step}",
        endpoint="chat",
        asked=("input_ids", "logprobs", "messages", "return_meta_info"),
        attempt=int(ask.retry_of is not None),
        prompt_ids=prompt,
        output_ids=output,
        logprobs=tuple(-0.5 - at / 100 - number for at in range(len(output))),
        finish_reason={"type": ask.finish},
        cached_tokens=len(before),
        weight_version=f"v{number}",
        spec=spec if speculative else None,
    )


def _rejected(scenario: Scenario, rollout: int, session: str) -> bool:
    source = scenario.rollouts[rollout]
    return session == "v2" and source.index is None and source.rollout_id is None


def _turn(ask: Asked, rollout: int, answer: Generation | None) -> Turn:
    return Turn(
        rollout=rollout,
        step=ask.step,
        kind="say",
        parent=ask.parent,
        retry_of=ask.retry_of,
        status=ask.status,
        response_id=answer.id if answer else None,
        finish_reason=ask.finish if answer else None,
    )


def _observe(scenario: Scenario, ledger: Ledger, session: str) -> Observation:
    views = [_view(scenario, ledger, number, session) for number in range(len(scenario.rollouts))]
    flat = [(number, sample) for number, view in enumerate(views) for sample in view.samples]
    sums = {number: sum(sum(s.loss_mask or ()) for s in view.samples) for number, view in enumerate(views)}
    generations = {
        g.id: g for number in range(len(views)) for node in _tree(ledger, number).kept for g in [node.generation]
    }
    train = {
        "tokens": [list(s.tokens) for _, s in flat],
        "response_lengths": [s.response_length for _, s in flat],
        "loss_masks": [list(s.loss_mask or ()) for _, s in flat],
        "truncated": [int(s.status == "truncated") for _, s in flat],
        "rollout_ids": [s.rollout_id if s.rollout_id is not None else s.index for _, s in flat],
        "rollout_mask_sums": [sums[number] for number, _ in flat],
        "rewards": [_reward_of(scenario, number) for number, _ in flat],
    }
    for name in ("rollout_log_probs", "weight_versions"):
        if any(getattr(s, name) for _, s in flat):
            train[name] = [list(getattr(s, name) or ()) for _, s in flat]
    counts = _counters(list(generations.values()))
    metrics = {"rollout/prefix_cache_hit_rate": _hit_rate(list(generations.values()))} if generations else {}
    if scenario.engine.speculative and counts.accept_length is not None and counts.accept_rate is not None:
        metrics |= {
            "rollout/spec_accept_length": counts.accept_length,
            "rollout/spec_accept_rate": counts.accept_rate,
        }
    ids = [source.rollout_id if source.rollout_id is not None else source.index for source in scenario.rollouts]
    clash = Error(type="RolloutIdentityError", message="ids") if len(set(ids)) < len(ids) else None
    batch = (
        BatchView(error=clash)
        if clash
        else BatchView(train_data=train, metrics=metrics, dropped=(), shards=(_shard(train),))
    )
    return Observation(session=session, rollouts=tuple(views), batch=batch, sessions_open=0, requests_open=0)  # type: ignore[arg-type]


def _reward_of(scenario: Scenario, number: int) -> float:
    """Of rollouts with equal rewards, normalized or not."""
    return 1.0 if scenario.batch.normalize == "none" else 0.0


def _shard(train: dict[str, Any]) -> ShardView:
    rows = range(len(train["tokens"]))
    return ShardView(
        columns=tuple(train), partition=tuple(rows), rollout_ids=tuple(train["rollout_ids"]), num_microbatches=(1,)
    )


def _tree(ledger: Ledger, number: int) -> Lineage:
    return lineage(ledger.turns_of(number), ledger.generations_of(number))


def _view(scenario: Scenario, ledger: Ledger, number: int, session: str) -> RolloutView:
    source = scenario.rollouts[number]
    input = SampleView(index=source.index, rollout_id=source.rollout_id, group_index=0, metadata={"task": "t"})
    rejected = _rejected(scenario, number, session)
    tree = _tree(ledger, number)
    trained: set[str] = set()
    samples = []
    for leaf in [] if rejected else tree.leaves:
        path = tree.path(leaf)
        samples.append((len(path), tree.nodes.index(leaf), _sample(scenario, input, path, trained)))
        trained |= {node.step for node in path}
    ordered = [s for _, _, s in sorted(samples, key=lambda entry: entry[:2], reverse=True) if s is not None]
    if not ordered and not rejected:
        ordered = [input.model_copy(update={"status": "aborted"})]
    error = Error(type="RolloutIdentityError", bases=("ValueError",), message="rollout_id and index are None")
    return RolloutView(
        input=input,
        input_after=input,
        agent_ran=not rejected,
        error=error if rejected else None,
        returned=None if rejected else ("list" if session == "v2" else "single"),
        samples=tuple(ordered),
    )


def _sample(scenario: Scenario, input: SampleView, path: Sequence[Node], trained: set[str]) -> SampleView | None:
    limit = scenario.max_seq_len or 1 << 30
    nodes = [node for node in path if len(node.generation.prompt_ids) < limit]
    if not nodes:
        return None
    generations = [node.generation for node in nodes]
    last = generations[-1]
    tokens = (last.prompt_ids + last.output_ids)[:limit]
    start = len(generations[0].prompt_ids)
    mask, logprobs = [0] * len(tokens), [0.0] * len(tokens)
    for node in nodes:
        g = node.generation
        for at, position in enumerate(
            range(len(g.prompt_ids), min(len(tokens), len(g.prompt_ids) + len(g.output_ids)))
        ):
            mask[position] = int(node.step not in trained)
            logprobs[position] = g.logprobs[at]
    cut = len(nodes) < len(path) or len(tokens) < len(last.prompt_ids) + len(last.output_ids)
    ended = {"stop": "completed", "length": "truncated", "abort": "aborted"}[last.finish_reason["type"]]
    text = ByteTokenizer(scenario.engine.tokenizer).decode(tokens[start:])
    id = input.rollout_id if input.rollout_id is not None else input.index
    lost = sum(len(node.generation.output_ids) for node in path) - sum(mask)
    told = {"dropped": {"max_seq_len": {"turns": len(path) - len(nodes), "tokens": lost}}} if cut else {}
    return input.model_copy(
        update={
            "rollout_id": id,
            "tokens": tokens,
            "response": text,
            "response_length": len(tokens) - start,
            "loss_mask": tuple(mask[start:]),
            "rollout_log_probs": tuple(logprobs[start:]),
            "weight_versions": tuple(g.weight_version for g in generations),
            "status": "truncated" if cut else ended,
            "metadata": {**input.metadata, "reward": 1.0, "note": "done", **told},
            "reward": 1.0,
            "spec_info": _counters(generations),
            "prefix_cache_info": PrefixCache(
                cached_tokens=sum(g.cached_tokens for g in generations),
                total_prompt_tokens=sum(len(g.prompt_ids) for g in generations),
            ),
        }
    )


def _counters(generations: Sequence[Generation]) -> Counters:
    counted = [g for g in generations if g.spec is not None]
    accepted, drafted, steps = (
        sum(getattr(g.spec, name) for g in counted) for name in ("accepted", "drafted", "verify_ct")
    )
    completion = sum(len(g.output_ids) for g in counted)
    return Counters(
        spec_accept_token_num=accepted,
        spec_draft_token_num=drafted,
        spec_verify_ct=steps,
        completion_token_num=completion,
        accept_rate=accepted / drafted if drafted else None,
        accept_length=completion / steps if steps else None,
    )


def _hit_rate(generations: Sequence[Generation]) -> float:
    return sum(g.cached_tokens for g in generations) / sum(len(g.prompt_ids) for g in generations)


@pytest.fixture
def made() -> SimpleNamespace:
    """The functions of this module, for tables of cases that are built when the test runs."""
    return SimpleNamespace(
        Asked=Asked,
        make=make,
        change=change,
        change_rollout=change_rollout,
        change_batch=change_batch,
        change_generation=change_generation,
        observe=observe,
    )
