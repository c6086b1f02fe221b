"""Logprobs of a whole response anew, by one prefill of it: miles' `recompute_logprobs_via_prefill`."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from miles_sim.rollout.direct.generate import post
from miles_sim.rollout.direct.request import lora_path
from miles_sim.rollout.engine_reply import is_logprob, read_json, read_object, short
from miles_sim.rollout.errors import AssemblyError, UpstreamResponseError
from miles_sim.rollout.sample import Sample, Status
from miles_sim.rollout.settings import RolloutSettings

SOURCE = "sglang_prefill_recompute"
"""Value of `metadata["rollout_log_probs_source"]` afterwards; miles' word."""


async def score(
    sample: Sample,
    *,
    settings: RolloutSettings,
    sampling_params: Mapping[str, Any],
    engine_url: str,
    client: httpx.AsyncClient,
) -> Sample:
    """A copy with the engine's prefill logprobs in `rollout_log_probs`; 0.0 stays where the mask is 0.

    The cache is left as it is: the engine computes what stands behind the start, which is the whole response, and
    may reuse the prompt. A sample without response, or an aborted one, comes back as it is, and nothing is asked.
    """
    if not sample.response_length or sample.status is Status.ABORTED:
        return copy.deepcopy(sample)
    body = scoring_body(sample, sampling_params, settings)
    url = f"{engine_url.rstrip('/')}/generate"
    content = await post(client, url, body, timeout=settings.request_timeout, routing_key=sample.routing_key)
    scored = copy.deepcopy(sample)
    found = read_scores(content, sample.tokens[len(sample.tokens) - sample.response_length :])
    mask = sample.loss_mask if sample.loss_mask is not None else [1] * len(found)
    scored.rollout_log_probs = [value if trained else 0.0 for value, trained in zip(found, mask, strict=True)]
    scored.metadata["rollout_log_probs_source"] = SOURCE
    return scored


def scoring_body(sample: Sample, sampling_params: Mapping[str, Any], settings: RolloutSettings) -> dict[str, Any]:
    """The request: no id is sampled, and logprobs start at the last prompt id, whose own is null.

    AssemblyError for a sample without prompt ids, which has no such place.
    """
    sample.validate()
    prompt = len(sample.tokens) - sample.response_length
    if prompt < 1:
        raise AssemblyError(f"tokens: {len(sample.tokens)} ids, all of the response; scoring needs one before it")
    sampling = {**copy.deepcopy(dict(sampling_params)), "max_new_tokens": 0, "temperature": 0}
    body: dict[str, Any] = {
        "input_ids": list(sample.tokens),
        "sampling_params": {**sampling, "skip_special_tokens": False},
        "return_logprob": True,
        "logprob_start_len": prompt - 1,
    }
    path = lora_path(sample, settings)
    return body if path is None else {**body, "lora_path": path}


def read_scores(body: bytes, response: Sequence[int]) -> list[float]:
    """One logprob for each id of `response`; UpstreamResponseError where ids differ or a logprob is no number."""
    meta_info = read_object(read_object(read_json(body)[0], "body").get("meta_info"), "meta_info")
    entries = meta_info.get("input_token_logprobs")
    place = "meta_info.input_token_logprobs"
    if not isinstance(entries, list) or len(entries) < len(response):
        found = f"{len(entries)} entries" if isinstance(entries, list) else short(entries)
        raise UpstreamResponseError(f"{place}: {found} for a response of {len(response)} ids")
    first = len(entries) - len(response)
    scores = []
    for number, (entry, token) in enumerate(zip(entries[first:], response, strict=True), start=first):
        if not isinstance(entry, list) or len(entry) < 2 or entry[1] != token:
            raise UpstreamResponseError(f"{place}[{number}]: {short(entry)} is not [logprob, {token}, …]")
        if not is_logprob(entry[0]):
            raise UpstreamResponseError(f"{place}[{number}][0]: {short(entry[0])} is not a finite number up to 0")
        scores.append(float(entry[0]))
    return scores
