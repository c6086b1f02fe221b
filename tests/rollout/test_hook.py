"""Functions that a setting names: one way to find each, whichever setting it is."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from miles_sim.rollout.errors import SettingsError
from miles_sim.rollout.hook import resolve_hook
from miles_sim.rollout.selection import PICKERS, POSTPROCESSORS
from miles_sim.rollout.session.matching import resolve as resolve_matcher

RESOLVERS: dict[str, Callable[[Any], Any]] = {
    "message_matcher": resolve_matcher,
    "sample_picker": lambda value: resolve_hook("sample_picker", value, PICKERS),
    "sample_postprocessor": lambda value: resolve_hook("sample_postprocessor", value, POSTPROCESSORS),
}


async def later(*_: Any) -> Any:
    raise AssertionError("never awaited")


@pytest.mark.parametrize("setting", RESOLVERS)
@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("nope", r"'nope' is not one of \[.*\], nor a dotted path$"),
        ("no.such", r"'no\.such' cannot be imported: ModuleNotFoundError"),
        ("json.nothing", r"'json\.nothing' cannot be imported: AttributeError"),
        ("..x", r"'\.\.x' cannot be imported: TypeError"),
        ("broken_module.fn", r"'broken_module\.fn' cannot be imported: ValueError: boom$"),
        ("math.pi", r"'math\.pi' is float, not a function$"),
        (3, "3 is not a name, a dotted path or a function$"),
        (None, "None is not a name, a dotted path or a function$"),
        (later, "'later' is asynchronous, not a plain function$"),
        (partial(later), "'partial' is asynchronous, not a plain function$"),
        ("asyncio.sleep", r"'asyncio\.sleep' is asynchronous, not a plain function$"),
    ],
)
def test_a_function_that_cannot_be_had_is_refused_by_its_setting(
    setting: str, value: Any, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_module.py").write_text("raise ValueError('boom')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingsError, match=f"^{setting}: {named}"):
        RESOLVERS[setting](value)


@pytest.mark.parametrize("setting", RESOLVERS)
@pytest.mark.parametrize("path", ["json.loads", "json:loads", "os.path.join", "os.path:join"])
def test_a_dotted_path_may_have_a_colon_before_the_name(setting: str, path: str) -> None:
    assert RESOLVERS[setting](path)
