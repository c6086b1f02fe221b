"""YAML files, read strictly: plain data only, no key twice, every fault with file and line."""

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from miles_sim.document import Document, DocumentError, read

D = TypeVar("D", bound=Document)


class _Once:
    """Refuses a key that stands twice in a mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)  # type: ignore[attr-defined]
            if isinstance(key, Hashable) and key in seen:
                raise yaml.MarkedYAMLError(problem=f"key {key!r} stands twice", problem_mark=key_node.start_mark)
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep=deep)  # type: ignore[misc,no-any-return]


class _Loader(_Once, yaml.SafeLoader):
    """Whatever is nested how deep."""


class _QuickLoader(_Once, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """By libyaml, where it is there: five times as fast, and it falls over what is nested without end."""


_SHALLOW = 1000
"""Levels for which libyaml is safe."""


def _parsed(text: str) -> tuple[yaml.Node | None, Any]:
    """The root, and the data; `YAMLError` in the words of the Python loader."""
    opened = text.count("[") + text.count("{") + text.count("- ") + text.count("? ")
    indent = max((len(line) - len(line.lstrip(" ")) for line in text.splitlines()), default=0)
    if opened + indent < _SHALLOW:
        try:
            return _by(_QuickLoader, text)
        except yaml.YAMLError:
            pass
    return _by(_Loader, text)


def _by(kind: Any, text: str) -> tuple[yaml.Node | None, Any]:
    loader = kind(text)
    try:
        root = loader.get_single_node()
        return root, None if root is None else loader.construct_document(root)
    finally:
        loader.dispose()


class YamlFile:
    """One YAML file: `data`, and the line on which each part of it stands."""

    def __init__(self, path: str | Path) -> None:
        """Raises `DocumentError` for a file that cannot be read or is no YAML."""
        self.path = Path(path)
        try:
            self._root, self.data = _parsed(self.path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DocumentError(f"{self.path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise DocumentError(f"{self.path}: not UTF-8: {error.reason} at byte {error.start}") from None
        except yaml.YAMLError as error:
            raise DocumentError(f"{self.path}: {_fault(error)}") from None
        except RecursionError:
            raise DocumentError(f"{self.path}: nested too deeply") from None

    def line(self, place: Sequence[str | int]) -> int | None:
        """Line (from 1) of the deepest part of `place` that the file holds."""
        node, mark = self._root, None
        for part in place:
            if isinstance(node, yaml.MappingNode):
                found = next(((k, v) for k, v in node.value if k.value == part), None)
                if found is not None:
                    mark, node = found[0].start_mark, found[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                mark = node.start_mark
        return None if mark is None else mark.line + 1

    def read(self, model: type[D]) -> D:
        """The file as a `model`; raises `DocumentError`, one line a fault."""
        return read(model, self.data, name=str(self.path), line=self.line)


def _fault(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())
    mark = error.problem_mark or error.context_mark
    place = f"line {mark.line + 1}: " if mark is not None else ""
    return f"{place}{error.problem or error.context}"
