"""The prefix cache: which ids of a prompt the engine has the KV of, from what it really read and wrote before.

SGLang keeps prompt and output of each finished request in a radix tree, but for the last sampled id, which was
never run through the model, and reuses the longest prefix of a new prompt, but for its last id, which it must run
to have a first logit. So does this tree, with one restriction: a past generation counts only for a prompt that
begins with that generation's *whole* prompt, that is for its continuations. Such a prompt can only be written
after the past answer was read (unless a client makes up the assistant's words), so what is cached never depends
on which of several concurrent conversations came first. In life it does, by exactly the part left out here: ids
that independent conversations share, a common system message above all. The same thing asked again (attempt 1, 2,
…) finds its whole prompt; an equal prompt with other sampling parameters finds what its own past left.

With a capacity the leaves that were used least recently go first, as in SGLang, which has a prompt in its tree before
its output: the one may go without the other. Which they are depends on the order in which requests come and finish;
until the first one goes, the capacity changes nothing.
"""

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from miles_sim.engine.packed import WIDTH, shared_ids

Space = tuple[str | None, int, str | None]
"""(adapter, how often it was loaded anew, extra key): requests of different spaces share nothing."""
_PLAIN: Space = (None, 0, None)
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
    given, whatever is stored.

    Most samples of a prompt are never continued: without a capacity outputs only hang on the end of their prompt,
    until one comes that goes on from there.
    """

    def __init__(self, capacity: int | None = None) -> None:
        """`capacity`: ids that it holds at most; None: all that ever were."""
        self.capacity = capacity
        self._size = 0
        self._roots: dict[Space, _Node] = {}
        self._asked: OrderedDict[tuple[Space, bytes], _Node | None] = OrderedDict()
        """Questions since the last flush, each with the end of its prompt once it was answered; with a capacity a
        bounded number of them, the latest, without ends."""
        self._loose: dict[_Node, list[bytes]] = {}
        """Outputs that are not in the tree yet, by the end of their prompt."""
        self._evicted = False
        self._uses = 0
        self._leaves: list[tuple[int, int, _Node]] = []
        """A heap of (last use, tie, node); entries whose node was used since, or has children, are void."""
        self._ties = 0

    @property
    def size(self) -> int:
        """Ids that it holds."""
        for node in list(self._loose):
            self._take_in(node)
        return self._size

    def add(self, prompt: bytes, output: bytes, *, question: bytes | None = None, space: Space = _PLAIN) -> None:
        """A generation has finished: its prompt and all its output ids, of which the last was never run through the
        model. `question`: as `cached` was given it."""
        end = self._asked.get((space, question)) if question is not None else None
        if end is None:
            end = self._end_of(prompt, question, space)
        if self.capacity is None:
            self._loose.setdefault(end, []).append(output)
        else:
            self._used(self._grown(end, output[:-_ID], end.shortest_prompt))
            self._evict(self.capacity)

    def _end_of(self, prompt: bytes, question: bytes | None, space: Space) -> _Node:
        """The node where this prompt ends, made where there is none."""
        self._uses += 1
        root = self._roots.get(space)
        if root is None:
            root = self._roots[space] = _Node(None, b"", 0, self._uses)
        end = self._grown(root, prompt, len(prompt))
        if question is not None and self.capacity is None and (space, question) in self._asked:
            self._asked[space, question] = end
        return end

    def _grown(self, node: _Node, ids: bytes, asked: int) -> _Node:
        """The node where these ids, behind `node`, end: the tree has them now. `asked`: bytes of their prompt, or,
        behind it, of any that ends there or before."""
        at, end, use = 0, len(ids), self._uses
        while at < end:
            first = ids[at : at + _ID]
            child = node.children.get(first)
            if child is None:
                child = node.children[first] = _Node(node, ids[at:], asked, use)
                self._size += (end - at) // _ID
                return child
            if not ids.startswith(child.ids, at):
                child = _split(node, child, shared_ids(ids, at, child.ids))
            if asked < child.shortest_prompt:
                child.shortest_prompt = asked
            child.used = use
            at += len(child.ids)
            node = child
        return node

    def _take_in(self, node: _Node) -> None:
        for output in self._loose.pop(node):
            self._grown(node, output[:-_ID], node.shortest_prompt)

    def cached(self, prompt: bytes, *, question: bytes | None = None, space: Space = _PLAIN) -> int:
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
        self._loose.clear()
        self._roots.clear()
        self._asked.clear()
        self._leaves.clear()
        self._size, self._evicted = 0, False

    def _path(self, ids: bytes, space: Space) -> Iterator[tuple[_Node, int]]:
        """Nodes along these ids, each with the bytes of it that agree."""
        node, at = self._roots.get(space), 0
        while node is not None and at < len(ids):
            if node in self._loose:
                self._take_in(node)
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
        while self._size > capacity:
            entry = heappop(self._leaves)
            if _valid(entry):
                node = entry[2]
                parent = node.parent
                if parent is not None:
                    self._evicted = True
                    del parent.children[node.ids[:_ID]]
                    self._size -= len(node.ids) // _ID
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
