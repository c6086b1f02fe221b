"""The prefix cache: which ids of a prompt the engine has the KV of, from what it really read and wrote before.

SGLang keeps prompt and output of each finished request in a radix tree, but for the last sampled id, which was
never run through the model, and reuses the longest prefix of a new prompt, but for its last id, which it must run
to have a first logit. So does this tree, with one restriction: a past generation counts only for a prompt that
begins with that generation's *whole* prompt, that is for its continuations. Such a prompt can only be written
after the past answer was read (unless a client makes up the assistant's words), so what is cached never depends
on which of several concurrent conversations came first. In life it does, by exactly the part left out here: ids
that independent conversations share, a common system message above all. The same thing asked again (attempt 1, 2,
…) finds its whole prompt; an equal prompt with other sampling parameters finds what its own past left.
"""

from collections.abc import Sequence


class _Node:
    """The ids from the parent to here, and the shortest prompt among the generations that pass here."""

    __slots__ = ("children", "ids", "shortest_prompt")

    def __init__(self, ids: tuple[int, ...], shortest_prompt: int) -> None:
        self.ids = ids
        self.shortest_prompt = shortest_prompt
        self.children: dict[int, _Node] = {}


Space = tuple[str | None, str | None]
"""(adapter, extra key): requests of different spaces share nothing."""


class PrefixCache:
    """A compressed trie a space. `cached` and `add` cost the length of what they are given, whatever is stored."""

    def __init__(self) -> None:
        self._roots: dict[Space, _Node] = {}
        self._asked: set[tuple[Space, bytes]] = set()

    def add(self, prompt_ids: Sequence[int], output_ids: Sequence[int], *, space: Space = (None, None)) -> None:
        """A generation has finished."""
        ids = (*prompt_ids, *output_ids[:-1])
        prompt = len(prompt_ids)
        node, at = self._roots.setdefault(space, _Node((), 1 << 62)), 0
        while at < len(ids):
            child = node.children.get(ids[at])
            if child is None:
                node.children[ids[at]] = _Node(ids[at:], prompt)
                return
            shared = _shared(ids, at, child.ids)
            if shared < len(child.ids):
                child = _split(node, child, shared)
            child.shortest_prompt = min(child.shortest_prompt, prompt)
            node, at = child, at + shared

    def cached(self, prompt_ids: Sequence[int], *, question: bytes | None = None, space: Space = (None, None)) -> int:
        """Ids at the head of this prompt that need no prefill, at the start of a request. `question`: equal for
        requests that ask the very same thing."""
        usable = len(prompt_ids) - 1
        if (question is not None and self._asked_before(question, space)) or usable <= 0:
            return max(usable, 0)
        ids = tuple(prompt_ids[:usable])
        node, at, best = self._roots.get(space), 0, 0
        while node is not None and at < usable:
            child = node.children.get(ids[at])
            if child is None:
                break
            shared = _shared(ids, at, child.ids)
            at += shared
            if child.shortest_prompt <= at:
                best = at
            if shared < len(child.ids):
                break
            node = child
        return best

    def clear(self) -> None:
        """Forget everything, as a flush does."""
        self._roots.clear()
        self._asked.clear()

    def _asked_before(self, question: bytes, space: Space) -> bool:
        key = (space, question)
        before = key in self._asked
        self._asked.add(key)
        return before


def _split(parent: _Node, child: _Node, at: int) -> _Node:
    upper = _Node(child.ids[:at], child.shortest_prompt)
    child.ids = child.ids[at:]
    upper.children[child.ids[0]] = child
    parent.children[upper.ids[0]] = upper
    return upper


def _shared(ids: tuple[int, ...], start: int, edge: tuple[int, ...]) -> int:
    """How many ids of `edge` stand in `ids` from `start` on."""
    most = min(len(edge), len(ids) - start)
    if ids[start : start + most] == edge[:most]:
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if ids[start + low : start + middle] == edge[low:middle]:
            low = middle
        else:
            high = middle
    return low
