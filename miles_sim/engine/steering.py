"""What a request makes of a reply beside bounding it: grammar, bias, least length, no end by a stop token."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from miles_sim.engine.errors import CrashError, NotModelledError, RequestError
from miles_sim.engine.grammar.constraint import Constraint
from miles_sim.engine.grammar.regex import parsed
from miles_sim.engine.profiles import SamplingWire


@dataclass(frozen=True)
class Steering:
    """Of one request; what it does not ask for has its neutral value."""

    ignore_eos: bool = False
    """No stop token ends it, those of the request included."""
    min_new_tokens: int = 0
    """No stop token comes before."""
    stop_regex: tuple[str, ...] = ()
    logit_bias: tuple[tuple[str, float], ...] = ()
    """By id, as the request spells it."""
    constraints: tuple[Constraint, ...] = ()
    stream_interval: int | None = field(default=None, repr=False, compare=False)
    """Ids in a piece of a stream; changes nothing in what is said."""

    @property
    def endless(self) -> bool:
        """No stop token ends it. A grammar's own end does, whatever is asked."""
        return self.ignore_eos and not self.constraints

    @property
    def constraint(self) -> Constraint | None:
        return self.constraints[0] if self.constraints else None

    @property
    def biases(self) -> Mapping[int, float]:
        """By id."""
        return {int(token): bias for token, bias in self.logit_bias}


NEUTRAL = Steering()


def steering_of(values: Mapping[str, Any], constraints: Sequence[Constraint]) -> Steering | None:
    """From sampling parameters by SGLang's names; None where they ask for nothing of the kind."""
    regex, bias = values.get("stop_regex"), values.get("logit_bias")
    asked = Steering(
        ignore_eos=bool(values.get("ignore_eos")),
        min_new_tokens=values.get("min_new_tokens") or 0,
        stop_regex=(regex,) if isinstance(regex, str) else tuple(regex or ()),
        logit_bias=tuple(sorted((str(token), float(b)) for token, b in bias.items())) if bias else (),
        constraints=tuple(constraints),
        stream_interval=values.get("stream_interval") or None,
    )
    return None if asked == NEUTRAL and asked.stream_interval is None else asked


def check_stop_regex(patterns: Sequence[str], wire: SamplingWire) -> None:
    """What the release says of too many or too long ones; `CrashError` for one that is no pattern: its parser's error
    is none that the release answers for."""
    limits = wire.stop_regex_limits
    if limits is not None and len(patterns) > limits.count:
        raise RequestError(f"at most {limits.count} stop_regex patterns are allowed, got {len(patterns)}")
    for pattern in patterns:
        size = len(pattern.encode(errors="surrogatepass"))
        if limits is not None and size > limits.bytes:
            raise RequestError(f"stop_regex is {size} bytes, over the {limits.bytes}-byte limit")
        try:
            parsed(pattern)
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise CrashError(str(error), told=True) from None


def check_bias(steering: Steering) -> None:
    """`NotModelledError` for a bias that no distribution comes out of."""
    for token, bias in steering.logit_bias:
        if not math.isfinite(bias):
            raise NotModelledError(f"logit_bias.{token}", bias, "finite numbers")
