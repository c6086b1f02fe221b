from pathlib import Path

import pytest

from miles_sim.document import DocumentError
from miles_sim.yaml_file import YamlFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.yaml"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: key 'a' stands twice"),
        ("a:\n  - {b: 1, b: 2}\n", "line 2: key 'b' stands twice"),
        ("a: [1\nb: 2\n", "line 2: "),
        ("a: !!python/object:os.system x\n", "line 1: could not determine a constructor"),
        ("a: b: c\n", "line 1: mapping values are not allowed here"),
        ("a: *b\n", "line 1: found undefined alias"),
        ("a: 1\n---\nb: 2\n", "line 2: but found another document"),
        ("? [a]\n: 1\n", "line 1: found unhashable key"),
        ("[" * 1500, "nested too deeply"),
        ("a: \0\n", "special characters are not allowed"),
    ],
)
def test_a_fault_is_named_with_its_line(path: Path, text: str, fault: str) -> None:
    path.write_text(text)
    with pytest.raises(DocumentError) as caught:
        YamlFile(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_read_is_named(path: Path) -> None:
    with pytest.raises(DocumentError, match="cannot be read: No such file"):
        YamlFile(path)
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(DocumentError, match=r"not UTF-8: .* at byte 3"):
        YamlFile(path)


def test_lines_are_those_of_the_deepest_known_part(path: Path) -> None:
    path.write_text("a:\n  b:\n    - 1\n    - c: 2\n")
    file = YamlFile(path)
    assert file.data == {"a": {"b": [1, {"c": 2}]}}
    places: list[tuple[str | int, ...]] = [("a",), ("a", "b"), ("a", "b", 1), ("a", "b", 1, "c"), ("a", "b", 1, "x")]
    assert [file.line(place) for place in places] == [1, 2, 4, 4, 4]
    assert file.line(("x",)) is None


def test_an_empty_file_holds_nothing(path: Path) -> None:
    path.write_text("# only a comment\n")
    assert YamlFile(path).data is None


def test_merge_keys_may_be_overridden(path: Path) -> None:
    path.write_text("base: &b {x: 1, y: 2}\nmine: {<<: *b, y: 3}\n")
    assert YamlFile(path).data["mine"] == {"x": 1, "y": 3}
