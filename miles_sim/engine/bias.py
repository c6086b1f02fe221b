"""`logit_bias`: a draft sampled again with some logits moved."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from miles_sim.engine.logprobs import Place, State, draw_of, logprob_of, next_state
from miles_sim.tokenizer import FIRST_SPACED_PIECE, FIRST_SPECIAL

_LEAST = 1e-9
"""Probability of all other ids together, at least."""
_FLOOR = -20.0
"""Of an id that a bias is about, before it: at least this, so that a bias of 100 forces the id, as it does in life."""
_LIKELIEST = math.log(0.6)
"""Of the likeliest among them, as `Place` has it."""


@dataclass(frozen=True)
class Biased:
    """Output ids, each with its logprob."""

    ids: list[int]
    logprobs: list[float]


def biased(
    ids: Sequence[int],
    biases: Mapping[int, float],
    random: Random,
    *,
    limit: int,
    state: State,
    stop_ids: frozenset[int],
    vocab_size: int,
) -> Biased:
    """The draft as sampled with these added to the logits, at most `limit` ids.

    `state`: that of the first place, which gives it its distribution without biases.

    At each place the drafted id stays with the chance that it has to stay so, else it makes way for one that the
    biases have made likelier: the distribution is a biased sampler's. A stop token that makes way is drafted again at
    the next place, so that a reply whose end is forbidden runs on to its bound.
    """
    made: list[int] = []
    told: list[float] = []
    place = 0
    while place < len(ids) and len(made) < limit:
        token = ids[place]
        around = Place(token, logprob_of(next_state(state, token)), draw_of(state), vocab_size)
        chosen, logprob = _Sampler(token, around, biases).draw(random)
        state = next_state(state, chosen)
        made.append(chosen)
        told.append(round(min(logprob, 0.0), 6) + 0.0)
        if chosen in stop_ids:
            break
        place += token not in stop_ids
    return Biased(made, told)


class _Sampler:
    """The distribution at one place, before and after; logarithms all."""

    def __init__(self, token: int, around: Place, biases: Mapping[int, float]) -> None:
        self._token, self._biases = token, biases
        self._before = {other: max(around.logprob(other), _FLOOR) for other in {**biases, token: 0.0}}
        moved = {other: logprob + biases.get(other, 0.0) for other, logprob in self._before.items()}
        self._rest = max(1 - math.fsum(map(math.exp, self._before.values())), _LEAST)
        highest = max(*moved.values(), 0.0)
        mass = math.fsum(math.exp(logprob - highest) for logprob in moved.values())
        self._total = highest + math.log(mass + self._rest * math.exp(-highest))
        self._after = {other: logprob - self._total for other, logprob in moved.items()}

    def draw(self, random: Random) -> tuple[int, float]:
        """Id and logprob."""
        token, after = self._token, self._after
        if random.random() < math.exp(min(after[token] - self._before[token], 0.0)):
            return token, after[token]
        gains = {other: math.exp(logprob) - math.exp(self._before[other]) for other, logprob in after.items()}
        gains = {other: gain for other, gain in gains.items() if gain > 0 and other != token}
        spare = self._rest * max(math.exp(-self._total) - 1, 0.0)
        drawn = random.random() * (math.fsum(gains.values()) + spare)
        for other, gain in gains.items():
            drawn -= gain
            if drawn < 0:
                return other, after[other]
        return self._word(random)

    def _word(self, random: Random) -> tuple[int, float]:
        """A word of which nothing was said; the drafted id where there is none."""
        for _ in range(64):
            other = random.randrange(FIRST_SPACED_PIECE, FIRST_SPECIAL)
            if other not in self._biases and other != self._token:
                return other, math.log(self._rest) - self._total + _LIKELIEST
        return self._token, self._after[self._token]
