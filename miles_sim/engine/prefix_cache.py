"""The prefix cache: which ids of a prompt the engine has the KV of, from what it really read and wrote before.

SGLang keeps prompt and output of each finished request in a radix tree, but for the last sampled id, which was
never run through the model, and reuses the longest prefix of a new prompt, but for its last id, which it must run
to have a first logit. So does this tree, with one restriction: a past generation counts only for a prompt that
begins with that generation's *whole* prompt, that is for its continuations. Such a prompt can only be written
after the past answer was read (unless a client makes up the assistant's words), so what is cached never depends
on which of several concurrent conversations came first. In life it does, by exactly the part left out here: ids
that independent conversations share, a common system message above all. The same thing asked again (attempt 1, 2,
…) finds its whole prompt; an equal prompt with other sampling parameters finds what its own past left.

With a capacity the leaves that were used least recently go first, as in SGLang. Which those are depends on the order
in which requests come and finish; until the first one goes, the capacity changes nothing.
"""

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from miles_sim.engine.packed import WIDTH, shared_ids

Space = tuple[str | None, str | None]
"""(adapter, extra key): requests of different spaces share nothing."""
_ID = WIDTH
"""Bytes of a packed id."""


class _Node:
    """The ids from the parent to here, packed, and bytes of the shortest prompt of the generations that pass here."""

    __slots__ = ("children", "ids", "parent", "shortest_prompt", "used")

    def __init__(self, parent: "_Node | None", ids: bytes, shortest_prompt: int, used: int) -> None:
        self.parent = parent
        self.ids = ids
        self.shortest_prompt = shortest_prompt
        self.used = used
        """Number of the last use; -1: evicted."""
        self.children: dict[bytes, _Node] = {}


class PrefixCache:
    """A compressed trie a space, of ids as bytes (`packed.pack`). `cached` and `add` cost the length of what they are
    given, whatever is stored."""

    def __init__(self, capacity: int | None = None) -> None:
        """`capacity`: ids that it holds at most; None: all that ever were."""
        self.capacity = capacity
        self.size = 0
        """Ids that it holds."""
        self._roots: dict[Space, _Node] = {}
        self._asked: OrderedDict[tuple[Space, bytes], None] = OrderedDict()
        """Questions since the last flush; with a capacity a bounded number of them, the latest."""
        self._evicted = False
        self._uses = 0
        self._leaves: list[tuple[int, int, _Node]] = []
        """A heap of (last use, tie, node); entries whose node was used since, or has children, are void."""
        self._ties = 0

    def add(self, prompt: bytes, output: bytes, *, space: Space = (None, None)) -> None:
        """A generation has finished: its prompt, and the output ids that were run through the model."""
        use = self._uses = self._uses + 1
        node = self._roots.get(space)
        if node is None:
            node = self._roots[space] = _Node(None, b"", 1 << 62, use)
        ids = prompt + output
        at, end, asked = 0, len(ids), len(prompt)
        while at < end:
            first = ids[at : at + _ID]
            child = node.children.get(first)
            if child is None:
                child = node.children[first] = _Node(node, ids[at:], asked, use)
                self.size += (end - at) // _ID
                node = child
                break
            if not ids.startswith(child.ids, at):
                child = _split(node, child, shared_ids(ids, at, child.ids))
            if asked < child.shortest_prompt:
                child.shortest_prompt = asked
            child.used = use
            at += len(child.ids)
            node = child
        if self.capacity is not None:
            self._used(node)
            self._evict(self.capacity)

    def cached(self, prompt: bytes, *, question: bytes | None = None, space: Space = (None, None)) -> int:
        """Ids at the head of this prompt that need no prefill, at the start of a request. `question`: equal for
        requests that ask the very same thing."""
        usable = len(prompt) - _ID
        before = question is not None and self._asked_before(question, space)
        if (before and not self._evicted) or usable <= 0:
            return max(usable, 0) // _ID
        ids = prompt[:usable]
        self._uses += 1
        at = best = 0
        last = None
        for last, shared in self._path(ids, space):
            at += shared
            last.used = self._uses
            if before or last.shortest_prompt <= at:
                best = at
        if last is not None and self.capacity is not None:
            self._used(last)
        return best // _ID

    def clear(self) -> None:
        """Forget everything, as a flush does."""
        self._roots.clear()
        self._asked.clear()
        self._leaves.clear()
        self.size, self._evicted = 0, False

    def _path(self, ids: bytes, space: Space) -> Iterator[tuple[_Node, int]]:
        """Nodes along these ids, each with the bytes of it that agree."""
        node, at = self._roots.get(space), 0
        while node is not None and at < len(ids):
            node = node.children.get(ids[at : at + _ID])
            if node is None:
                return
            shared = shared_ids(ids, at, node.ids)
            yield node, shared
            if shared < len(node.ids):
                return
            at += shared

    def _asked_before(self, question: bytes, space: Space) -> bool:
        key = (space, question)
        before = key in self._asked
        if not before:
            self._asked[key] = None
        if self.capacity is not None:
            self._asked.move_to_end(key)
            if len(self._asked) > max(1024, self.capacity // 64):
                self._asked.popitem(last=False)
        return before

    def _used(self, node: _Node) -> None:
        """It may be the next leaf to go, some day."""
        if not node.children and node.parent is not None:
            self._ties += 1
            heappush(self._leaves, (node.used, self._ties, node))
            if self._ties % 1024 == 0:
                self._leaves = [entry for entry in self._leaves if _valid(entry)]
                heapify(self._leaves)

    def _evict(self, capacity: int) -> None:
        """Drop leaves until all fits."""
        while self.size > capacity:
            entry = heappop(self._leaves)
            if _valid(entry):
                node = entry[2]
                parent = node.parent
                if parent is not None:
                    self._evicted = True
                    del parent.children[node.ids[:_ID]]
                    self.size -= len(node.ids) // _ID
                    node.used, node.parent = -1, None
                    self._used(parent)


def _valid(entry: tuple[int, int, _Node]) -> bool:
    used, _, node = entry
    return node.used == used and not node.children


def _split(parent: _Node, child: _Node, at: int) -> _Node:
    upper = _Node(parent, child.ids[:at], child.shortest_prompt, child.used)
    child.ids, child.parent = child.ids[at:], upper
    upper.children[child.ids[:_ID]] = child
    parent.children[upper.ids[:_ID]] = upper
    return upper
