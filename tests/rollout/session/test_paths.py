from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from miles_sim.rollout.session.matching import KeyedMatcher, resolve
from miles_sim.rollout.session.paths import ComparedPaths, KeyedPaths, Spot, paths

WORDS = st.sampled_from("abc")
DELTAS = st.lists(WORDS, min_size=1, max_size=3)


def messages(words: list[str]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": word} for word in words]


@given(st.lists(st.tuples(st.integers(0, 20), DELTAS), max_size=12), st.lists(WORDS, max_size=8))
def test_both_indexes_find_the_deepest_then_latest_stored_prefix(
    grown: list[tuple[int, list[str]]], asked: list[str]
) -> None:
    strict = resolve("strict")
    keyed, compared = paths(strict), paths(resolve(lambda stored, replayed: bool(stored == replayed)))
    assert isinstance(keyed, KeyedPaths)
    assert isinstance(compared, ComparedPaths)
    histories: list[list[str]] = []
    spots: list[tuple[Spot, Spot]] = []
    for seq, (where, delta) in enumerate(grown):
        parent = where % (len(histories) + 1) - 1
        start = (keyed.root, compared.root) if parent < 0 else spots[parent]
        spots.append((keyed.add(start[0], messages(delta), seq), compared.add(start[1], messages(delta), seq)))
        histories.append([*(histories[parent] if parent >= 0 else []), *delta])
    fitting = [(len(h), seq) for seq, h in enumerate(histories) if asked[: len(h)] == h]
    expected = max(fitting, default=None)
    for index in (keyed, compared):
        found = index.find(messages(asked))
        assert (found and (found.depth, found.ends)) == expected


def test_finding_a_place_looks_at_each_asked_message_once_whatever_the_tree_holds() -> None:
    seen: list[Any] = []

    def key(message: Any) -> Any:
        seen.append(message)
        return message["content"]

    index = KeyedPaths(KeyedMatcher("counting", key))
    trunk = index.add(index.root, messages(["u", "a"]), 0)
    for seq in range(1, 2_000):
        index.add(trunk if seq % 2 else index.root, messages([f"u{seq}", f"a{seq}"]), seq)
    seen.clear()
    found = index.find(messages(["u", "a", "u1", "a1", "new"]))
    assert found is not None
    assert found.ends == 1
    assert len(seen) == 5
