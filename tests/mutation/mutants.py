"""Mutants of one module: mutmut's operators, each a change of one node of the module's syntax tree."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import file_mutation

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "miles_sim" / "rollout"


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    id: str
    """By what it changes, not by its line: stays the same when other code moves."""
    module: str
    path: Path
    function: str
    """Top-level function or method, as `Sample.validate`; empty for what runs when the module is imported."""
    first: int
    last: int
    """Lines of the innermost statement around it, without its body unless it is a function."""
    statement: str
    """First line of that statement."""
    before: str
    after: str
    text: str = field(repr=False)
    """The whole module, unchanged."""
    tree: cst.Module = field(repr=False)
    top: cst.CSTNode = field(repr=False)
    """The statement of the module that it stands in."""
    node: cst.CSTNode = field(repr=False)
    changed: cst.CSTNode = field(repr=False)

    @property
    def source(self) -> str:
        """The whole module, changed."""
        changed = file_mutation.deep_replace(self.top, self.node, self.changed)
        before, after = (self.tree.code_for_node(node) for node in (self.top, changed))
        return self.text.replace(before, after, 1)


class _Finder(file_mutation.MutationVisitor):
    """mutmut's own visitor, which notes what stands around a node.

    mutmut leaves decorated functions out, as its trampolines cannot hold them; `plant` can.
    """

    def __init__(self) -> None:
        super().__init__(file_mutation.mutation_operators, file_mutation.IgnoredCode(set(), set(), set()))
        self.stack: list[cst.CSTNode] = []
        self.found: list[tuple[cst.CSTNode, cst.CSTNode, tuple[cst.CSTNode, ...]]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        self.stack.append(node)
        already = len(self.mutations)
        descend = super().on_visit(node)
        self.found += [(node, mutation.mutated_node, tuple(self.stack)) for mutation in self.mutations[already:]]
        return descend

    def on_leave(self, original_node: cst.CSTNode) -> None:
        self.stack.pop()
        super().on_leave(original_node)

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef) and node.decorators:
            return node.name.value in file_mutation.NEVER_MUTATE_FUNCTION_NAMES
        return isinstance(node, cst.Decorator) or bool(super()._skip_node_and_children(node))


def mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of the module at `path`, in the order of its text."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    wrapper = MetadataWrapper(cst.parse_module(text))
    finder = _Finder()
    wrapper.visit(finder)
    tree, positions = wrapper.module, wrapper.resolve(PositionProvider)
    seen: dict[str, int] = {}
    for node, changed, stack in finder.found:
        before, after = (" ".join(tree.code_for_node(one).split()) for one in (node, changed))
        first, last = _lines(stack, positions)
        function, statement = _function(stack), lines[first - 1].strip()
        key = "\n".join([module, function, statement, before, after])
        seen[key] = seen.get(key, 0) + 1
        id = hashlib.blake2b(f"{key}\n{seen[key]}".encode(), digest_size=5).hexdigest()
        yield Mutant(
            id, module, path, function, first, last, statement, before, after, text, tree, stack[1], node, changed
        )


def _lines(stack: tuple[cst.CSTNode, ...], positions: Any) -> tuple[int, int]:
    """First and last line of the innermost statement of `stack`, without its body unless it is a function."""
    kinds = (cst.SimpleStatementLine, cst.BaseCompoundStatement, cst.ExceptHandler)
    statement = next((node for node in reversed(stack) if isinstance(node, kinds)), stack[0])
    place = positions[statement]
    if isinstance(statement, cst.FunctionDef):  # its defaults show wherever it runs
        return place.start.line, place.end.line
    body = getattr(statement, "body", None)
    if isinstance(body, cst.IndentedBlock):
        return place.start.line, max(place.start.line, positions[body.body[0]].start.line - 1)
    return place.start.line, place.end.line


def _function(stack: tuple[cst.CSTNode, ...]) -> str:
    names: list[str] = []
    for node in stack:
        if isinstance(node, cst.ClassDef):
            names.append(node.name.value)
        elif isinstance(node, cst.FunctionDef):
            return ".".join([*names, node.name.value])
    return ""
