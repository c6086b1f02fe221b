"""A scenario as the YAML that a person would have written: what is as by default is left out."""

from typing import Any

import yaml
from pydantic import BaseModel

from miles_sim.scenarios.model import Scenario

WIDTH = 110


def scenario_yaml(scenario: Scenario, *, comment: str = "") -> str:
    """The file's text, which `library.load_file` reads back as the same scenario; each line of `comment` opens it."""
    text = yaml.safe_dump(_plain(scenario), sort_keys=False, allow_unicode=True, width=WIDTH, default_flow_style=None)
    return "".join(f"# {line}\n" for line in comment.splitlines()) + text


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        told = {name: getattr(value, name) for name in fields}
        # `do` tells the kinds of step apart, and `name`, `title` and `plan` have no default
        kept = sorted(told, key=lambda name: name != "do")
        return {name: _plain(told[name]) for name in kept if name == "do" or told[name] != fields[name].default}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value
