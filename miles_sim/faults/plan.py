"""A fault plan: where which fault strikes, and when. What it does then is its kind's (`catalogue`)."""

from typing import Any

from pydantic import Field, model_validator

from miles_sim.document import Document


class Where(Document):
    """Places of a play; what is None is any. All that is given must hold."""

    rollout: int | None = Field(default=None, ge=0)
    """Position in the scenario's rollouts."""
    step: str | None = Field(default=None, min_length=1)
    """Glob over the keys of the plan's steps: `2`, `3.1.*` (a subagent's leaf), `*`. On the way between driver and
    session server, where there are no steps, one of `open`, `collect`, `delete`."""
    attempt: int | None = Field(default=None, ge=0)
    """How often the same request has been made at that place before."""


class When(Document):
    """Which of the places that fit are struck. At most one of the three; none of them: all."""

    first: int | None = Field(default=None, ge=1)
    """The first so many attempts at each place: fine from then on."""
    every: int | None = Field(default=None, ge=1)
    """Every k-th question of a rollout, counted in the plan's order, whatever the order of arrival."""
    probability: float | None = Field(default=None, gt=0, le=1)
    """Each place and attempt by a draw of its own under the scenario's seed."""

    @model_validator(mode="after")
    def _one(self) -> "When":
        given = [name for name in ("first", "every", "probability") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"when: {given[0]} and {given[1]} exclude each other")
        return self


class Fault(Document):
    """One entry of a plan."""

    kind: str
    """A name of the catalogue: `miles-sim faults`."""
    params: dict[str, Any] = {}
    """The kind's own parameters; what is left out is as by default."""
    where: Where = Where()
    when: When = When()
