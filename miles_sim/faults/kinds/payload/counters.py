"""Counters of speculative decoding and of the prefix cache that count nothing, or contradict one another."""

from collections.abc import Callable
from random import Random
from typing import Any

from miles_sim.faults.body import ReplyBody, Slot
from miles_sim.faults.kinds.payload.edit import NOT_THE_PROTOCOL, payload
from miles_sim.faults.strike import CannotStrike

ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
DRAFTED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
HISTOGRAMS = ("spec_correct_drafts_histogram", "spec_accept_histogram")
VERIFY = ("spec_verify_ct",)
"""Each counter as releases have spelled it."""

_UNCOUNTED = "ids and logprobs are whole, and a rate that cannot be known is left out: unavailable, never 0.0"
_UNREAD = "no figure is taken from it: the rates follow from the sums"


def _slots(body: ReplyBody, names: tuple[str, ...]) -> list[Slot]:
    found = [Slot(meta, name) for meta in body.metas() for name in names if meta.get(name) is not None]
    if not found:
        raise CannotStrike(f"the {body.kind} reply has no {names[0]}")
    return found


@payload("spec-missing", verdict="tolerate", reason=_UNCOUNTED, counters=("spec_info",))
def _missing(body: ReplyBody, params: Any, random: Random) -> None:
    """The counters of speculative decoding are missing, though it ran."""
    for slot in _slots(body, (*ACCEPTED, *DRAFTED, *VERIFY, *HISTOGRAMS)):
        slot.remove()


def _all(name: str, statement: str, convert: Callable[[Any], Any]) -> None:
    def edit(body: ReplyBody, params: Any, random: Random) -> None:
        for slot in _slots(body, (*ACCEPTED, *DRAFTED, *VERIFY)):
            slot.set(convert(slot.value))

    edit.__doc__ = statement
    payload(f"spec-{name}", reason=NOT_THE_PROTOCOL)(edit)


_all("negative", "The counters of speculative decoding are negative.", lambda value: -1 - value)
_all("string", "The counters of speculative decoding are strings.", str)
_all("float", "The counters of speculative decoding are floats.", float)


@payload("spec-accepted-more", verdict="tolerate", reason=_UNCOUNTED, counters=("spec_info",))
def _accepted_more(body: ReplyBody, params: Any, random: Random) -> None:
    """More drafts are accepted than were made."""
    drafted = _slots(body, DRAFTED)[0].value
    for slot in _slots(body, ACCEPTED):
        slot.set(drafted + 3)


@payload("spec-no-steps", verdict="tolerate", reason=_UNCOUNTED, counters=("spec_info",))
def _no_steps(body: ReplyBody, params: Any, random: Random) -> None:
    """Drafts were accepted, in no verify step."""
    for slot in _slots(body, VERIFY):
        slot.set(0)


@payload("spec-histogram", verdict="tolerate", reason=_UNREAD)
def _histogram(body: ReplyBody, params: Any, random: Random) -> None:
    """The histogram of accepted drafts adds up to other sums."""
    for slot in _slots(body, HISTOGRAMS):
        slot.set([*slot.value, 5])


@payload("spec-rate", verdict="tolerate", reason=_UNREAD)
def _rate(body: ReplyBody, params: Any, random: Random) -> None:
    """The rates that the engine tells beside its sums are not theirs."""
    for slot in _slots(body, ("spec_accept_rate", "spec_accept_length")):
        slot.set(9.0)


@payload("cached-missing", verdict="tolerate", reason=_UNCOUNTED, counters=("prefix_cache_info",))
def _cached_missing(body: ReplyBody, params: Any, random: Random) -> None:
    """The count of cached prompt ids is missing."""
    for slot in body.meta("cached_tokens"):
        slot.remove()


@payload("cached-more", verdict="tolerate", reason=_UNCOUNTED, counters=("prefix_cache_info",))
def _cached_more(body: ReplyBody, params: Any, random: Random) -> None:
    """More prompt ids are said to be cached than there are."""
    for slot in body.meta("cached_tokens"):
        slot.set(slot.holder["prompt_tokens"] + 1)


@payload("cached-negative", reason=NOT_THE_PROTOCOL)
def _cached_negative(body: ReplyBody, params: Any, random: Random) -> None:
    """The count of cached prompt ids is negative."""
    for slot in body.meta("cached_tokens"):
        slot.set(-1)


@payload("cached-string", reason=NOT_THE_PROTOCOL)
def _cached_string(body: ReplyBody, params: Any, random: Random) -> None:
    """The count of cached prompt ids is a string."""
    for slot in body.meta("cached_tokens"):
        slot.set(str(slot.value))
