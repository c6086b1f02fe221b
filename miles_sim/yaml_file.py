"""YAML files, read strictly: plain data only, no key twice, every fault with file and line."""

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from miles_sim.document import Document, DocumentError, read

D = TypeVar("D", bound=Document)


class _Loader(yaml.SafeLoader):
    """`SafeLoader` that refuses a key that stands twice in a mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.MarkedYAMLError(problem=f"key {key!r} stands twice", problem_mark=key_node.start_mark)
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep=deep)


class YamlFile:
    """One YAML file: `data`, and the line on which each part of it stands."""

    def __init__(self, path: str | Path) -> None:
        """Raises `DocumentError` for a file that cannot be read or is no YAML."""
        self.path = Path(path)
        try:
            loader = _Loader(self.path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DocumentError(f"{self.path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise DocumentError(f"{self.path}: not UTF-8: {error.reason} at byte {error.start}") from None
        except yaml.YAMLError as error:
            raise DocumentError(f"{self.path}: {_fault(error)}") from None
        try:
            self._root: yaml.Node | None = loader.get_single_node()
            self.data: Any = None if self._root is None else loader.construct_document(self._root)
        except yaml.YAMLError as error:
            raise DocumentError(f"{self.path}: {_fault(error)}") from None
        except RecursionError:
            raise DocumentError(f"{self.path}: nested too deeply") from None
        finally:
            loader.dispose()

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
