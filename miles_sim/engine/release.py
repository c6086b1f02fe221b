"""What releases differ in beside generation: routes and the control plane, as data from `fixtures/releases.yaml`."""

from functools import lru_cache
from typing import Any, Literal

import yaml
from pydantic import Field

from miles_sim.document import Document, read
from miles_sim.engine.profiles import ProfileError
from miles_sim.resources import FIXTURES

FILE = FIXTURES / "releases.yaml"
FlushRule = Literal["nothing_running", "idle", "idle_or_paused"]


class Release(Document):
    """One release's control plane."""

    routes: dict[str, tuple[str, ...]]
    """Methods by path, in Starlette's notation."""
    flush_needs: FlushRule
    """State in which the cache can be flushed; under a pause, `idle_or_paused` lets requests wait."""
    flush_failure: Literal["same", "told"]
    """What a refused flush says: the words of a successful one, or that it failed."""
    flush_after_update: Literal["dies", "told"]
    """A weight update whose flush is refused: the scheduler ends by an assertion, or 400."""
    weight_session: bool
    """Tensors and distributed weights are taken between `begin_weight_update` and `end_weight_update` alone."""
    weight_version_route: Literal["value", "gone"]
    duplicate_rid: Literal["listed", "named"]
    """How a request with an id that is under way is refused; 0.5.6 takes it, and mixes the two up."""
    lora_disabled: Literal["ignored", "refused"]
    """A request with an adapter on a server that serves none."""
    lora_tensors: Literal["serialized_tensors", "serialized_named_tensors"]
    """In which field the tensors of an adapter come."""
    weights_checksum: Literal["none", "ranks", "roles"]
    """`/weights_checker` sums up by rank, or by rank and role; `none`: it cannot, and its action must be named."""
    tokenizes_messages: bool
    """`/tokenize` takes a conversation too."""
    reasoning_blocks: bool
    """`/separate_reasoning` knows `return_blocks`."""
    model_info: tuple[str, ...]
    server_info: tuple[str, ...]
    """Keys of `/server_info` behind the server arguments, in wire order."""
    internal_state: tuple[str, ...]
    """Keys of an entry of its `internal_states` behind the server arguments; `avg_spec_accept_length` only where a
    verify step ran."""
    get_load: tuple[str, ...]
    loads_body: tuple[str, ...]
    loads: tuple[str, ...]
    """Keys of one entry of `/v1/loads`, its optional sections aside."""


class _Releases(Document):
    source: str = Field(min_length=1)
    order: tuple[str, ...]
    facts: dict[str, dict[str, Any]]
    """Value of each fact from that profile on."""
    routes: dict[str, dict[str, tuple[str, ...]]]


@lru_cache(maxsize=32)
def release(profile: str) -> Release:
    """The control plane of the release that a profile speaks; `ProfileError` where it has none."""
    known, so_far = _releases(), order_until(profile)
    facts = {name: _last(values, so_far) for name, values in known.facts.items()}
    routes = {path: _last(values, so_far) for path, values in known.routes.items()}
    facts["routes"] = {path: methods for path, methods in routes.items() if methods}
    return read(Release, facts, name=f"fixtures/releases.yaml: {profile}")


def order_until(profile: str) -> tuple[str, ...]:
    """Profiles by release, up to that one; `ProfileError` where it is none of them."""
    order = _releases().order
    if profile not in order:
        raise ProfileError(f"profile: {profile!r} is none of {', '.join(order)} in fixtures/releases.yaml")
    return order[: order.index(profile) + 1]


@lru_cache(maxsize=1)
def _releases() -> _Releases:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return read(_Releases, yaml.load(FILE.read_text(encoding="utf-8"), Loader=loader), name="fixtures/releases.yaml")


def _last(values: dict[str, Any], so_far: tuple[str, ...]) -> Any:
    return next((values[profile] for profile in reversed(so_far) if profile in values), None)
