"""Contract packs: found by folder, loaded without a top-level module, clashes refused."""

import sys
from pathlib import Path

import pytest

from miles_sim.verify.pack import PackError, combine, load_pack, select

RULE = '''
from miles_sim.verify import rule

@rule("{id}", level="meaning", reason="r", source="s")
def check(case, see):
    """A statement."""
'''


def pack(folder: Path, **modules: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_a_folder_of_modules_is_a_pack_sorted_by_id(tmp_path: Path) -> None:
    folder = pack(tmp_path, b=RULE.format(id="own/b"), a=RULE.format(id="own/c"), test_x="raise SystemExit")
    assert [rule.id for rule in load_pack(folder)] == ["own/b", "own/c"]
    assert "a" not in sys.modules


def test_modules_of_a_pack_import_one_another_relatively(tmp_path: Path) -> None:
    folder = pack(tmp_path, _common="X = 'own/x'", a="from ._common import X\n" + RULE.replace('"{id}"', "X"))
    assert [rule.id for rule in load_pack(folder)] == ["own/x"]


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({}, "has no rule module"),
        ({"a": RULE.format(id="own/a"), "b": RULE.format(id="own/a")}, "stands twice"),
        ({"a": "import nowhere_to_be_found"}, "nowhere_to_be_found"),
        ({"a": RULE.format(id="noarea")}, "an id is area/name"),
        ({"a": RULE.format(id="own/a").replace('"""A statement."""', "pass")}, "no docstring"),
    ],
)
def test_what_is_no_pack_is_refused_by_name(tmp_path: Path, modules: dict[str, str], message: str) -> None:
    with pytest.raises(PackError, match=message):
        load_pack(pack(tmp_path, **modules))


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackError, match="is not a folder"):
        load_pack(tmp_path / "nowhere")


def test_patterns_select_and_a_pattern_without_a_match_is_refused(tmp_path: Path) -> None:
    rules = load_pack(pack(tmp_path, a=RULE.format(id="own/a"), b=RULE.format(id="other/b")))
    assert [rule.id for rule in select(rules, ["own/*"])] == ["own/a"]
    assert select(rules, []) == rules
    with pytest.raises(PackError, match=r"'nope/\*' matches none of the 2 contracts \(areas: other, own\)"):
        select(rules, ["nope/*"])


def test_one_id_in_two_packs_is_refused(tmp_path: Path) -> None:
    first = load_pack(pack(tmp_path / "one", a=RULE.format(id="own/a")))
    second = load_pack(pack(tmp_path / "two", a=RULE.format(id="own/a")))
    with pytest.raises(PackError, match="stands in two packs"):
        combine([first, second])
