"""Each rule on cases made by hand: it passes a right one with a witness, and reports the wrong one."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from miles_sim.targets.observation import Counters, Error
from miles_sim.verify import Case, Rule
from miles_sim.verify.judge import judge
from miles_sim.verify.pack import load_pack
from miles_sim.verify.report import Verdict

RULES = {rule.id: rule for rule in load_pack() if rule.scope != "scenario"}
Make = Callable[[SimpleNamespace], Case]

TREE = (
    ("1", "hello", "one,"),
    ("2", "and", "two.", "1"),
    ("3.1", "fork", "three.", "1"),
    ("4", "compact", "four."),
)
TREE_STEPS = [
    {"do": "say"},
    {"do": "say"},
    {"do": "subagent", "start": "fork", "at": "1", "steps": [{"do": "say"}]},
    {"do": "compact"},
]
RETRY = (("1", "hello", "one,"), ("2", "hello", "anew,", None, "1"), ("3", "and", "three.", "2"))
PARALLEL = (("1", "hello", "one,"), ("2.1.1", "a", "two.", "1"), ("2.2.1", "b", "three.", "1"))
BRANCH = {"do": "subagent", "start": "fork", "steps": [{"do": "say"}]}
PARALLEL_STEPS = [{"do": "say"}, {"do": "parallel", "branches": [BRANCH, BRANCH]}]


def tree(m: SimpleNamespace, **options: Any) -> Case:
    return m.make([m.Asked(*a) for a in TREE], steps=TREE_STEPS, **options)


def retry(m: SimpleNamespace, **options: Any) -> Case:
    return m.make([m.Asked(*a) for a in RETRY], **options)


def parallel(m: SimpleNamespace, **options: Any) -> Case:
    return m.make([m.Asked(*a) for a in PARALLEL], steps=PARALLEL_STEPS, **options)


def two(m: SimpleNamespace) -> Case:
    return m.make(rollouts=[{"index": 7}, {"index": 8}])


def unequal(m: SimpleNamespace) -> Case:
    """A tree whose batch is refused, as its siblings have rewards of their own."""
    case = tree(m, batch={"rewards": "sample"})
    error = Error(type="RewardError", message="rollout 7: reward: rows [0, 1, 2] have [1.0, 0.5, 0.25]")
    return m.change_batch(case, error=error, train_data=None, metrics=None, dropped=None, shards=None)


def stepped(m: SimpleNamespace) -> Case:
    """Two rollouts in steps of one."""
    return m.make(rollouts=[{"index": 7}, {"index": 8}], batch={"global_batch_size": 1})


def unfilled(m: SimpleNamespace) -> Case:
    """One rollout where a step takes two."""
    case = m.make(batch={"global_batch_size": 2})
    error = Error(type="BatchError", message="batch: 1 rollouts are fewer than global_batch_size=2")
    return m.change_batch(case, error=error, train_data=None, metrics=None, dropped=None, shards=None)


def nobody(m: SimpleNamespace) -> Case:
    return m.make(rollouts=[{"index": None}])


def clash(m: SimpleNamespace) -> Case:
    return m.make(rollouts=[{"index": 0, "rollout_id": 7}, {"index": 7}])


def truncated(m: SimpleNamespace) -> Case:
    return m.make([m.Asked("1", "hello", "one", finish="length"), m.Asked("2", "and", "two.", "1", status=409)])


def no_step(m: SimpleNamespace) -> Case:
    return m.make([m.Asked("1", "hello", None)])


def cut(m: SimpleNamespace) -> Case:
    return m.make(max_seq_len=len("hello0one,") + 1 + len("and") + 2)


def first(case: Case) -> Any:
    return case.observation.rollouts[0].samples[0]


def counters(case: Case, **changed: Any) -> Counters:
    return first(case).spec_info.model_copy(update=changed)


def zeros() -> Counters:
    return Counters(spec_accept_token_num=0, spec_draft_token_num=0, spec_verify_ct=0, completion_token_num=0)


def same(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


BROKEN: list[tuple[str, Make, Callable[[SimpleNamespace, Case], Case]]] = [
    ("identity/siblings-share-id", tree, lambda m, c: m.change(c, sample=1, rollout_id=99)),
    ("identity/siblings-share-id", tree, lambda m, c: m.change(c, sample=1, rollout_id=None)),
    (
        "identity/explicit-id-kept",
        lambda m: m.make(rollouts=[{"rollout_id": 0}]),
        lambda m, c: m.change(c, rollout_id=7),
    ),
    ("identity/index-fallback", lambda m: tree(m, rollouts=[{"index": 0}]), lambda m, c: m.change(c, rollout_id=None)),
    ("identity/single-leaf-effective-id", lambda m: m.make(), lambda m, c: m.change(c, rollout_id=8)),
    ("identity/missing-rejected", nobody, lambda m, c: m.change_rollout(c, error=None)),
    ("identity/missing-rejected", nobody, lambda m, c: m.change_rollout(c, agent_ran=True)),
    (
        "identity/missing-rejected",
        nobody,
        lambda m, c: m.change_rollout(c, error=Error(type="AssertionError", message="rollout_id or index")),
    ),
    (
        "identity/missing-rejected",
        nobody,
        lambda m, c: m.change_rollout(c, error=Error(type="RolloutIdentityError", message="no id")),
    ),
    (
        "identity/input-untouched",
        lambda m: m.make(),
        lambda m, c: m.change_rollout(
            c, input_after=c.observation.rollouts[0].input.model_copy(update={"reward": 1.0})
        ),
    ),
    (
        "identity/no-aliasing",
        tree,
        lambda m, c: m.change_rollout(c, shared_objects=("0.metadata is 1.metadata",)),
    ),
    ("identity/fields-carried", lambda m: m.make(), lambda m, c: m.change(c, metadata={"note": "done"})),
    ("identity/fields-carried", lambda m: m.make(), lambda m, c: m.change(c, group_index=None)),
    ("identity/distinct-across-batch", two, lambda m, c: m.change(c, rollout=1, rollout_id=7)),
    ("identity/distinct-across-batch", clash, lambda m, c: m.change_batch(c, error=None)),
    ("identity/accepted-downstream", two, lambda m, c: m.change_batch(c, error=Error(type="AssertionError"))),
    ("identity/aborted-shape", lambda m: m.make(()), lambda m, c: m.change(c, status="pending")),
    ("identity/aborted-shape", lambda m: m.make(()), lambda m, c: m.change_rollout(c, samples=())),
    ("identity/aborted-shape", lambda m: m.make(session="v1"), lambda m, c: m.change_rollout(c, returned="list")),
    ("counters/collected-when-on", lambda m: m.make(), lambda m, c: m.change(c, spec_info=zeros())),
    ("counters/collected-when-on", lambda m: m.make(), lambda m, c: m.change(c, spec_info=None)),
    (
        "counters/absent-when-off",
        lambda m: m.make(speculative=False),
        lambda m, c: m.change_batch(c, metrics={"rollout/spec_accept_rate": 0.0}),
    ),
    (
        "counters/absent-when-off",
        lambda m: m.make(speculative=False),
        lambda m, c: m.change(c, spec_info=zeros().model_copy(update={"completion_token_num": 3})),
    ),
    ("counters/missing-keys-tolerated", no_step, lambda m, c: m.change(c, spec_info=zeros())),
    (
        "counters/missing-keys-tolerated",
        no_step,
        lambda m, c: m.change_rollout(c, error=Error(type="KeyError"), samples=()),
    ),
    (
        "counters/absent-setting-tolerated",
        lambda m: m.make(speculative=False),
        lambda m, c: m.change_rollout(c, error=Error(type="AttributeError"), samples=()),
    ),
    ("counters/merge-sums", lambda m: m.make(), lambda m, c: m.change(c, spec_info=counters(c, spec_verify_ct=2))),
    ("counters/reaches-driver", lambda m: m.make(), lambda m, c: m.change(c, spec_info=zeros())),
    (
        "counters/renamed-keys-read",
        lambda m: m.make(),
        lambda m, c: m.change(c, spec_info=counters(c, spec_accept_token_num=0, spec_draft_token_num=0)),
    ),
    (
        "counters/accept-length-true",
        lambda m: m.make(),
        lambda m, c: m.change(c, spec_info=counters(c, accept_length=0.0)),
    ),
    (
        "counters/accept-rate-honest",
        lambda m: m.make(),
        lambda m, c: m.change(c, spec_info=counters(c, accept_rate=0.0)),
    ),
    (
        "counters/accept-rate-honest",
        no_step,
        lambda m, c: m.change(c, spec_info=counters(c, accept_rate=0.0)),
    ),
    (
        "counters/counted-once-across-siblings",
        tree,
        lambda m, c: m.change_batch(c, metrics={**c.observation.batch.metrics, "rollout/spec_accept_length": 1.0}),
    ),
    (
        "counters/prefix-cache-true",
        lambda m: m.make(),
        lambda m, c: m.change(c, prefix_cache_info=first(c).prefix_cache_info.model_copy(update={"cached_tokens": 0})),
    ),
    ("counters/prefix-cache-counted-once", tree, lambda m, c: m.change_batch(c, metrics={})),
    ("counters/weight-versions-in-order", lambda m: m.make(), lambda m, c: m.change(c, weight_versions=("v1", "v0"))),
    ("tokens/lengths-agree", lambda m: m.make(), lambda m, c: m.change(c, loss_mask=first(c).loss_mask[1:])),
    ("tokens/lengths-agree", lambda m: m.make(), lambda m, c: m.change(c, rollout_log_probs=(0.0,))),
    (
        "tokens/prompt-is-what-the-engine-got",
        lambda m: m.make(),
        lambda m, c: m.change(c, tokens=(1, *first(c).tokens[1:])),
    ),
    (
        "tokens/response-is-what-it-said",
        lambda m: m.make(),
        lambda m, c: m.change(c, tokens=(*first(c).tokens[:-2], 1, 2)),
    ),
    (
        "tokens/logprobs-aligned",
        lambda m: m.make(),
        lambda m, c: m.change(c, rollout_log_probs=(*first(c).rollout_log_probs[1:], 0.0)),
    ),
    ("tokens/logprobs-aligned", lambda m: m.make(), lambda m, c: m.change(c, rollout_log_probs=None)),
    (
        "tokens/observation-masked",
        lambda m: m.make(),
        lambda m, c: m.change(c, loss_mask=(1,) * first(c).response_length),
    ),
    (
        "tokens/trainable-exactly-once",
        lambda m: m.make(),
        lambda m, c: m.change(c, loss_mask=(0, *first(c).loss_mask[1:])),
    ),
    ("tokens/trainable-exactly-once", tree, lambda m, c: m.change(c, sample=0, loss_mask=_all_said(c, 0))),
    ("tokens/trainable-exactly-once", lambda m: m.make(), lambda m, c: m.change(c, remove_sample=True)),
    (
        "tokens/trailing-trim",
        lambda m: m.make(),
        lambda m, c: m.change_generation(c, 1, prompt_ids=(*c.ledger.generations[0].prompt_ids, 1, 2, 3)),
    ),
    (
        "tokens/trailing-trim",
        lambda m: m.make(),
        lambda m, c: m.change(c, tokens=first(c).tokens[:-1], response_length=first(c).response_length - 1),
    ),
    ("tokens/truncation-at-turn", cut, lambda m, c: m.change(c, status="completed")),
    ("tokens/truncation-at-turn", lambda m: m.make(max_seq_len=1000), lambda m, c: m.change(c, status="truncated")),
    ("tokens/dropped-told", cut, lambda m, c: m.change(c, metadata={"task": "t", "reward": 1.0, "note": "done"})),
    (
        "metrics/sane",
        lambda m: m.make(),
        lambda m, c: m.change_batch(c, metrics={**c.observation.batch.metrics, "perf/tokens_per_sec": float("inf")}),
    ),
    ("metrics/sane", lambda m: m.make(), lambda m, c: m.change_batch(c, metrics={"rollout/truncated_ratio": 1.5})),
    ("train-data/columns", two, lambda m, c: _without_column(m, c, "rollout_log_probs")),
    ("tokens/text-agrees", lambda m: m.make(), lambda m, c: m.change(c, response="other")),
    ("selection/retry-dropped", retry, lambda m, c: _with_dropped(m, c)),
    ("selection/subagent-kept", tree, lambda m, c: _without(m, c, 0)),
    ("selection/compaction-kept", tree, lambda m, c: _without(m, c, 2)),
    ("selection/order-stable", tree, lambda m, c: m.change_rollout(c, samples=c.observation.rollouts[0].samples[::-1])),
    ("status/mapped", lambda m: m.make(), lambda m, c: m.change(c, status="truncated")),
    ("status/never-pending", lambda m: m.make(), lambda m, c: m.change(c, status="pending")),
    ("status/truncated-not-extended", truncated, lambda m, c: _extended(m)),
    ("wire/every-computed-field-crosses", lambda m: m.make(), lambda m, c: m.change(c, spec_info=None)),
    ("wire/every-computed-field-crosses", lambda m: m.make(), lambda m, c: m.change(c, weight_versions=())),
    ("wire/agent-metadata-crosses", lambda m: m.make(), lambda m, c: m.change(c, metadata={"task": "t"})),
    ("wire/agent-metadata-crosses", lambda m: m.make(), lambda m, c: m.change(c, reward=None)),
    ("session/none-left-behind", lambda m: m.make(), lambda m, c: m.observe(c, sessions_open=1)),
    (
        "session/ends-in-samples",
        lambda m: m.make(),
        lambda m, c: m.change_rollout(c, error=Error(type="OSError"), samples=()),
    ),
    ("session/siblings-in-parallel", parallel, lambda m, c: _without(m, c, 1)),
    ("session/isolation", two, lambda m, c: _swapped(m, c)),
    ("train-data/rows", two, lambda m, c: _train(m, c, loss_masks=[[0], [1]])),
    ("train-data/ids", two, lambda m, c: _train(m, c, rollout_ids=[7, 7])),
    ("train-data/mask-sums", tree, lambda m, c: _train(m, c, rollout_mask_sums=[1, 2, 3])),
    ("train-data/rewards-per-rollout", two, lambda m, c: _train(m, c, rewards=[0.0, 0.5])),
    ("train-data/rewards-per-rollout", two, lambda m, c: _without_column(m, c, "rewards")),
    ("train-data/unequal-rewards-refused", unequal, lambda m, c: m.change_batch(c, error=None)),
    ("train-data/trimming", stepped, lambda m, c: _train(m, c, rollout_ids=[7])),
    ("train-data/trimming", stepped, lambda m, c: m.change_batch(c, dropped=(7,))),
    ("train-data/trimming", stepped, lambda m, c: m.change_batch(c, train_data=None)),
    ("train-data/trimming", unfilled, lambda m, c: m.change_batch(c, error=None)),
    ("train-data/shards", two, lambda m, c: _shard(m, c, columns=("tokens",))),
    ("train-data/shards", two, lambda m, c: _shard(m, c, partition=(0,), rollout_ids=(7,))),
    ("train-data/shards", two, lambda m, c: _shard(m, c, rollout_ids=(9, 9))),
    ("train-data/shards", two, lambda m, c: m.change_batch(c, shards=())),
    (
        "engine/arithmetic",
        lambda m: m.make(),
        lambda m, c: m.change_generation(c, spec=c.ledger.generations[0].spec.model_copy(update={"accepted": 1})),
    ),
    ("engine/replies-agree", lambda m: m.make(), lambda m, c: m.change_generation(c, logprobs=())),
    ("engine/response-ids-unique", lambda m: m.make(), lambda m, c: m.change_generation(c, 1, id="0-1")),
    (
        "engine/request-arrives-whole",
        lambda m: m.make(),
        lambda m, c: m.change_generation(c, 1, asked=("logprobs", "messages", "return_meta_info")),
    ),
]


def _all_said(case: Case, sample: int) -> tuple[int, ...]:
    rollout = case.rollouts[0]
    found = rollout.alignments[sample]
    unsaid = set(found.unsaid())
    return tuple(int(at not in unsaid) for at in range(found.response_start, found.length))


def _with_dropped(m: SimpleNamespace, case: Case) -> Case:
    dropped = case.ledger.generations[0]
    elder = first(m.make([m.Asked("1", "hello", "one,")])).model_copy()
    view = case.observation.rollouts[0]
    return m.change_rollout(case, samples=(*view.samples, elder)) if dropped.output_ids else case


def _without(m: SimpleNamespace, case: Case, number: int) -> Case:
    samples = case.observation.rollouts[0].samples
    return m.change_rollout(case, samples=samples[:number] + samples[number + 1 :])


def _extended(m: SimpleNamespace) -> Case:
    return m.make([m.Asked("1", "hello", "one", finish="length"), m.Asked("2", "and", "two.", "1")])


def _swapped(m: SimpleNamespace, case: Case) -> Case:
    left, right = (view.samples for view in case.observation.rollouts)
    return m.change_rollout(m.change_rollout(case, 0, samples=right), 1, samples=left)


def _train(m: SimpleNamespace, case: Case, **columns: Any) -> Case:
    return m.change_batch(case, train_data={**case.observation.batch.train_data, **columns})  # type: ignore[union-attr]


def _without_column(m: SimpleNamespace, case: Case, name: str) -> Case:
    columns = case.observation.batch.train_data  # type: ignore[union-attr]
    return m.change_batch(case, train_data={key: value for key, value in columns.items() if key != name})


def _shard(m: SimpleNamespace, case: Case, **fields: Any) -> Case:
    (shard,) = case.observation.batch.shards  # type: ignore[union-attr]
    return m.change_batch(case, shards=(shard.model_copy(update=fields),))


def verdict(case: Case, rule: Rule) -> Verdict:
    return judge(case, [rule])[0].verdict


@pytest.mark.parametrize(("id", "make", "break_it"), BROKEN, ids=[entry[0] for entry in BROKEN])
def test_a_rule_passes_the_right_case_and_reports_the_broken_one(
    id: str, make: Make, break_it: Callable[[SimpleNamespace, Case], Case], made: SimpleNamespace
) -> None:
    case = make(made)
    assert verdict(case, RULES[id]) is Verdict.PASS
    assert verdict(break_it(made, case), RULES[id]) is Verdict.VIOLATION


BY_DEFECT_ALONE = {
    "counters/direct-session-parity",
    "engine/adapter-named",
    "engine/concurrency-order-free",
    "engine/determinism",
    "engine/keys-per-profile",
    "engine/prefix-left-reusable",
    "identity/missing-rejected-under-O",
    "metrics/throughput-true",
    "selection/hooks-contained",
    "session/closing-race",
    "session/collect-survived",
    "session/headers-once",
    "session/node-cap",
    "session/order-free",
    "session/play-ends",
    "session/requests-served",
    "status/agent-failure-told",
    "tokens/prompt-canonical",
    "tokens/replay-rows-agree",
    "wire/malformed-refused",
    "wire/round-trip-lossless",
    "wire/schema-pinned",
}
"""Rules that only a whole play can break, those of faults beside them: `tests/defects` does."""


def test_every_other_rule_is_broken_by_hand() -> None:
    in_plays = {id for id in RULES if id.startswith("faults/")} | BY_DEFECT_ALONE
    assert {entry[0] for entry in BROKEN} == set(RULES) - in_plays


@pytest.mark.parametrize(
    "make",
    [lambda m: m.make(), tree, retry, parallel, two, nobody, clash, truncated, no_step, cut, lambda m: m.make(())],
    ids=["line", "tree", "retry", "parallel", "two", "nobody", "clash", "truncated", "no-step", "cut", "nothing"],
)
def test_a_right_case_violates_no_rule(make: Make, made: SimpleNamespace) -> None:
    judgements = judge(make(made), list(RULES.values()))
    assert {j.rule.id: j.violations for j in judgements if j.violations} == {}


def test_each_rule_says_what_it_states_why_and_where_from() -> None:
    for rule in RULES.values():
        assert rule.statement.endswith("."), rule.id
        assert rule.reason.endswith("."), rule.id
        assert rule.source, rule.id


def test_a_cut_sample_may_lose_only_what_the_limit_keeps_out(made: SimpleNamespace) -> None:
    case = cut(made)
    sample = first(case)
    assert sample.status == "truncated"
    shorter = made.change(
        case,
        tokens=sample.tokens[:-1],
        response_length=sample.response_length - 1,
        loss_mask=sample.loss_mask[:-1],
        rollout_log_probs=sample.rollout_log_probs[:-1],
    )
    assert verdict(shorter, RULES["tokens/trainable-exactly-once"]) is Verdict.VIOLATION


def test_only_a_key_of_the_servers_that_the_error_names_excuses_a_rollout_without_samples(
    made: SimpleNamespace,
) -> None:
    def refused(message: str, key: str) -> Verdict:
        case = made.make(rollouts=[{"index": 7, "metadata": {key: 1}}])
        error = Error(type="AssemblyError", message=message)
        return verdict(made.change_rollout(case, error=error, samples=()), RULES["session/ends-in-samples"])

    assert refused("metadata.dropped: set by assembly", "dropped") is not Verdict.VIOLATION
    assert refused("the connection was lost", "dropped") is Verdict.VIOLATION
    assert refused("metadata.task: refused", "task") is Verdict.VIOLATION
