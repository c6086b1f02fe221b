"""Which generations a sample is made of: found by ids alone, never by what a target says of itself."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from miles_sim.ledger import Generation


@dataclass(frozen=True)
class Span:
    """`tokens[start:end]` of a sample are the first `end - start` ids that `generation` sampled."""

    start: int
    end: int
    generation: Generation

    @property
    def matched(self) -> int:
        return self.end - self.start

    @property
    def whole(self) -> bool:
        """No sampled id is missing."""
        return self.matched == len(self.generation.output_ids)


@dataclass(frozen=True)
class Alignment:
    """The generations along one sample, first turn first. Positions index the sample's `tokens`."""

    length: int
    response_start: int
    spans: tuple[Span, ...]

    @property
    def generations(self) -> tuple[Generation, ...]:
        return tuple(span.generation for span in self.spans)

    @property
    def end(self) -> int:
        """Where the last span ends; what stands behind it came from no generation and no prompt."""
        return self.spans[-1].end if self.spans else 0

    def unsaid(self) -> Iterator[int]:
        """Positions of the response that no generation sampled, in order."""
        position = self.response_start
        for span in self.spans:
            yield from range(position, span.start)
            position = max(position, span.end)
        yield from range(position, self.length)


def align(
    tokens: Sequence[int], response_length: int, generations: Iterable[Generation], *, max_trim: int
) -> Alignment:
    """Walk the generations whose prompt is a prefix of `tokens` and whose output follows it.

    Up to `max_trim` ids may be missing at the end of an output that something else follows; any number where the
    sample ends. Of generations that were asked the same, the longest match wins, then the latest.
    """
    tokens = tuple(tokens)
    asked = sorted((g for g in generations if _opens(g.prompt_ids, tokens)), key=lambda g: len(g.prompt_ids))
    spans: list[Span] = []
    for start, rivals in groupby(asked, key=lambda g: len(g.prompt_ids)):
        if spans and start < spans[-1].end:
            continue
        matches = [
            Span(start, start + shared(g.output_ids, tokens[start : start + len(g.output_ids)]), g) for g in rivals
        ]
        said = [span for span in matches if _said(span, len(tokens), max_trim)]
        if said:
            spans.append(max(reversed(said), key=lambda span: span.matched))
    return Alignment(len(tokens), len(tokens) - response_length, tuple(spans))


def shared(left: Sequence[object], right: Sequence[object]) -> int:
    """Length of the common prefix."""
    if left == right:
        return len(left)
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def _opens(prompt: Sequence[int], tokens: tuple[int, ...]) -> bool:
    return len(prompt) <= len(tokens) and tokens[: len(prompt)] == prompt


def _said(span: Span, length: int, max_trim: int) -> bool:
    if span.whole:
        return True
    if span.end == length:
        return span.matched > 0
    return len(span.generation.output_ids) - span.matched <= max_trim
