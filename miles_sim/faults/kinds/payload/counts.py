"""Counts of prompt and sampled ids that are not how many there are."""

from random import Random
from typing import Any

from miles_sim.faults.body import ReplyBody
from miles_sim.faults.kinds.payload.edit import payload
from miles_sim.faults.strike import CannotStrike

_SHORT = "the count is how a consumer knows that the logprobs are whole: with another count they are not known to be"
_PROMPT = "an engine that counts other prompt ids than it was given has sampled from another prompt"
_TWICE = "what is trained on and counted is read from `meta_info`; `usage` is the client's, and a copy"


def _set(name: str, field: str, convert: Any, statement: str, reason: str) -> None:
    def edit(body: ReplyBody, params: Any, random: Random) -> None:
        for slot in body.meta(field):
            slot.set(convert(slot.value))
            if usage := _usage(body):
                usage[field] = slot.value

    edit.__doc__ = statement
    payload(name, reason=reason)(edit)


def _usage(body: ReplyBody) -> dict[str, Any] | None:
    usage = None if body.kind == "generate" else body.document.get("usage")
    return usage if isinstance(usage, dict) else None


_set("completion-tokens-more", "completion_tokens", lambda n: n + 1, "More sampled ids are counted than told.", _SHORT)
_set("completion-tokens-fewer", "completion_tokens", lambda n: n - 1, "One sampled id fewer is counted.", _SHORT)
_set("completion-tokens-string", "completion_tokens", str, "The count of sampled ids is a string.", _SHORT)
_set("completion-tokens-null", "completion_tokens", lambda n: None, "The count of sampled ids is null.", _SHORT)
_set("prompt-tokens-more", "prompt_tokens", lambda n: n + 1, "One prompt id more is counted than was sent.", _PROMPT)
_set("prompt-tokens-fewer", "prompt_tokens", lambda n: n - 1, "One prompt id fewer is counted than was sent.", _PROMPT)
_set("prompt-tokens-string", "prompt_tokens", str, "The count of prompt ids is a string.", _PROMPT)


@payload(
    "usage-contradicting",
    verdict="tolerate",
    reason=_TWICE,
)
def _usage_contradicting(body: ReplyBody, params: Any, random: Random) -> None:
    """`usage` counts otherwise than `meta_info`."""
    usage = _usage(body)
    if usage is None:
        raise CannotStrike(f"the {body.kind} reply has no usage")
    body.metas()
    usage |= {"prompt_tokens": 1, "completion_tokens": 99, "total_tokens": 7}


@payload("usage-missing", verdict="tolerate", reason=_TWICE)
def _usage_missing(body: ReplyBody, params: Any, random: Random) -> None:
    """The reply has no `usage`."""
    if _usage(body) is None:
        raise CannotStrike(f"the {body.kind} reply has no usage")
    body.metas()
    del body.document["usage"]
