"""What the prefix cache finds, in any order of what it saw."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from miles_sim.engine.packed import pack
from miles_sim.engine.prefix_cache import PrefixCache

ids = st.lists(st.integers(0, 2), max_size=12)
seen = st.lists(st.tuples(ids.filter(bool), ids), max_size=8)


def brute_force(past: list[tuple[list[int], list[int]]], prompt: list[int]) -> int:
    usable = prompt[:-1]
    best = 0
    for old_prompt, output in past:
        whole = old_prompt + output[:-1]
        shared = next((n for n, (a, b) in enumerate(zip_longest(whole, usable)) if a != b), len(whole))
        if shared >= len(old_prompt):
            best = max(best, shared)
    return best


def add(cache: PrefixCache, prompt: Sequence[int], output: Sequence[int], **space: Any) -> None:
    cache.add(pack(prompt), pack(output), **space)


def cached(cache: PrefixCache, prompt: Sequence[int], **asked: Any) -> int:
    return cache.cached(pack(prompt), **asked)


def filled(past: list[tuple[list[int], list[int]]]) -> PrefixCache:
    cache = PrefixCache()
    for prompt, output in past:
        add(cache, prompt, output)
    return cache


@given(past=seen, prompt=ids)
def test_the_tree_finds_what_comparing_with_every_past_generation_finds(
    past: list[tuple[list[int], list[int]]], prompt: list[int]
) -> None:
    assert cached(filled(past), prompt) == brute_force(past, prompt)


@given(past=seen, prompt=ids, data=st.data())
def test_the_order_of_the_past_does_not_matter(
    past: list[tuple[list[int], list[int]]], prompt: list[int], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(past))
    assert cached(filled(past), prompt) == cached(filled(shuffled), prompt)


def test_a_continuation_finds_all_but_the_last_sampled_id() -> None:
    cache = filled([([1, 2, 3], [4, 5, 6])])
    assert cached(cache, [1, 2, 3, 4, 5, 6, 7, 8]) == 5


def test_a_continuation_with_other_words_finds_the_prompt_it_continues() -> None:
    assert cached(filled([([1, 2, 3], [4, 5, 6])]), [1, 2, 3, 9, 9]) == 3


def test_a_conversation_that_shares_only_a_beginning_finds_nothing() -> None:
    assert cached(filled([([1, 2, 3], [4, 5, 6])]), [1, 2, 9, 9]) == 0


def test_an_equal_prompt_finds_nothing_of_its_twin() -> None:
    assert cached(filled([([1, 2, 3], [4])]), [1, 2, 3]) == 0


def test_the_same_thing_asked_again_finds_all_but_the_id_that_gives_the_first_logit() -> None:
    cache = PrefixCache()
    assert [cached(cache, [1, 2, 3], question=b"q") for _ in range(2)] == [0, 2]
    cache.clear()
    assert cached(cache, [1, 2, 3], question=b"q") == 0


def test_spaces_share_nothing() -> None:
    cache = PrefixCache()
    add(cache, [1, 2], [3, 4], space=("adapter", None))
    assert cached(cache, [1, 2, 3, 4], space=("adapter", None)) == 3
    assert cached(cache, [1, 2, 3, 4]) == cached(cache, [1, 2, 3, 4], space=("adapter", "salt")) == 0


def test_a_cleared_cache_finds_nothing() -> None:
    cache = filled([([1], [2, 3])])
    cache.clear()
    assert cached(cache, [1, 2, 3, 4]) == 0


def test_cost_does_not_grow_with_what_is_stored() -> None:
    """A long path is compared edge by edge, each id a bounded number of times."""
    cache = PrefixCache()
    path: list[int] = []
    for turn in range(200):
        path = [*path, turn, turn + 1]
        add(cache, path, [turn + 2, turn + 3])
        path = [*path, turn + 2]
    assert cached(cache, [*path, 0]) == len(path)


@given(past=seen, capacity=st.integers(1, 12), prompt=ids)
def test_a_capacity_is_kept_and_finds_no_more_than_all_of_the_past(
    past: list[tuple[list[int], list[int]]], capacity: int, prompt: list[int]
) -> None:
    bounded, whole = PrefixCache(capacity), PrefixCache()
    for old_prompt, output in past:
        add(bounded, old_prompt, output)
        add(whole, old_prompt, output)
        assert bounded.size <= capacity
    assert cached(bounded, prompt) <= cached(whole, prompt)
    assert whole.size > capacity or cached(bounded, prompt) == cached(whole, prompt)


@given(past=seen)
def test_the_size_is_that_of_the_tree_of_all_that_was_seen(past: list[tuple[list[int], list[int]]]) -> None:
    prefixes = {tuple(whole[: n + 1]) for p, o in past for whole in [p + o[:-1]] for n in range(len(whole))}
    assert filled(past).size == len(prefixes)


@given(past=seen, looks=st.lists(st.sampled_from(["prompt", "size", "flush"]), max_size=8), prompt=ids)
def test_what_is_asked_between_and_whoever_asks_it_changes_nothing(
    past: list[tuple[list[int], list[int]]], looks: list[str], prompt: list[int]
) -> None:
    cache, kept, before = PrefixCache(), list[tuple[list[int], list[int]]](), list[list[int]]()
    for (asked, output), look in zip_longest(past, looks[: len(past)]):
        question = pack(asked)
        found = cached(cache, asked, question=question)
        assert found == (len(asked) - 1 if asked in before else brute_force(kept, asked))
        before.append(asked)
        if look == "flush":
            cache.clear()
            kept.clear()
            before.clear()
        cache.add(pack(asked), pack(output), question=question)
        kept.append((asked, output))
        if look == "prompt":
            assert cached(cache, prompt) == brute_force(kept, prompt)
        elif look == "size":
            assert cache.size == filled(kept).size
    assert cached(cache, prompt) == brute_force(kept, prompt)


def test_what_was_used_least_recently_goes_first() -> None:
    cache = PrefixCache(9)
    for first in (10, 20, 30):
        add(cache, [first, first + 1], [first + 2, first + 3])
    assert cached(cache, [10, 11, 12, 0]) == 3
    add(cache, [40, 41], [42, 43])
    assert [cached(cache, [n, n + 1, n + 2, 0]) for n in (10, 20, 30, 40)] == [3, 0, 3, 3]


def test_only_leaves_go() -> None:
    cache = PrefixCache(6)
    add(cache, [1, 2], [3, 0])
    add(cache, [1, 2, 3, 4], [5, 0])
    add(cache, [9], [8, 0])
    assert (cached(cache, [1, 2, 3, 0]), cached(cache, [1, 2, 3, 4, 5, 0])) == (3, 4)


def test_what_was_asked_before_and_evicted_is_not_cached() -> None:
    cache = PrefixCache(3)
    assert cached(cache, [1, 2, 3], question=b"q") == 0
    add(cache, [1, 2, 3], [4])
    assert cached(cache, [1, 2, 3], question=b"q") == 2
    add(cache, [7, 8, 9], [4])
    assert cached(cache, [1, 2, 3], question=b"q") == 0


def test_a_bounded_cache_stays_bounded_in_all_it_keeps() -> None:
    cache = PrefixCache(100)
    for n in range(5000):
        cached(cache, [n, n + 1, n + 2], question=str(n).encode())
        add(cache, [n, n + 1, n + 2], [n, n])
    assert cache.size <= 100
    assert len(cache._leaves) <= 1200
    assert len(cache._asked) <= 1024
