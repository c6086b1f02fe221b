"""What the direct path asks the engine: prompt ids, token budget, the body of `/generate`."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from miles_sim.rollout.errors import AssemblyError, SettingsError
from miles_sim.rollout.plain import not_json
from miles_sim.rollout.sample import Sample
from miles_sim.rollout.settings import RolloutSettings
from miles_sim.tokenizer import ChatTokenizer


def prompt_ids(
    sample: Sample, tokenizer: ChatTokenizer, settings: RolloutSettings, specs: Sequence[Mapping[str, Any]] | None
) -> list[int]:
    """Ids of the sample's prompt: those it holds already, else a string as it is, messages through the template.

    AssemblyError for a prompt that gives no id, and for images and the like, which the direct path does not serve.
    """
    held = [name for name, value in (sample.multimodal_inputs or {}).items() if value is not None]
    if held:
        raise AssemblyError(f"multimodal_inputs.{held[0]}: not served on the direct path")
    if sample.tokens:
        return list(sample.tokens[: len(sample.tokens) - sample.response_length])
    if isinstance(sample.prompt, str):
        ids = tokenizer.encode(sample.prompt)
    else:
        ids = tokenizer.render(sample.prompt, tools=specs, template_options=dict(settings.template_options) or None)
    if not ids:
        raise AssemblyError(f"prompt: {sample.prompt!r:.80} has no ids")
    return ids


def max_new_tokens(sampling_params: Mapping[str, Any], settings: RolloutSettings) -> int | None:
    """The budget of one reply; None where `max_seq_len` alone bounds it. SettingsError if neither does."""
    value = sampling_params.get("max_new_tokens")
    if value is None:
        if settings.max_seq_len is None:
            raise SettingsError("max_new_tokens: None, and max_seq_len: None; one of them must bound a reply")
        return None
    if type(value) is not int or value < 0:
        raise SettingsError(f"max_new_tokens: {value!r} is not a whole number of at least 0")
    return value


def room(budget: int | None, settings: RolloutSettings, *, known: int, own: int) -> tuple[int, str]:
    """Ids that a request may sample, at least 0, and the name of the limit that says so.

    `known`: ids so far; `own`: those of them that belong to the same reply, sampled before it was broken off.
    """
    limits = []
    if budget is not None:
        limits.append((budget - own, "max_new_tokens"))
    if settings.max_seq_len is not None:
        limits.append((settings.max_seq_len - known, "max_seq_len"))
    left, name = min(limits)
    return max(left, 0), name


def generate_body(
    ids: Sequence[int], sampling_params: Mapping[str, Any], settings: RolloutSettings, sample: Sample, *, limit: int
) -> dict[str, Any]:
    """The body of a request for at most `limit` ids. It shares nothing with `sampling_params`.

    No start for prompt logprobs is ever set: the engine would compute, not reuse, every prompt id behind it.
    SettingsError for `n` above 1, of which all replies but one would be lost, and for what is no JSON.
    """
    if fault := not_json(dict(sampling_params), "sampling_params"):
        raise SettingsError(fault)
    if sampling_params.get("n") not in (None, 1) or isinstance(sampling_params.get("n"), bool):
        raise SettingsError(f"n: {sampling_params['n']!r}; a rollout is one reply, so only 1")
    body: dict[str, Any] = {
        "input_ids": list(ids),
        "sampling_params": {**copy.deepcopy(dict(sampling_params)), "max_new_tokens": limit},
        "return_logprob": True,
    }
    if settings.routing_replay:
        body["return_routed_experts"] = True
    if settings.indexer_replay:
        body["return_indexer_topk"] = True
    path = lora_path(sample, settings)
    return body if path is None else {**body, "lora_path": path}


def lora_path(sample: Sample, settings: RolloutSettings) -> str | None:
    """The adapter to name: that of the sample's slot (miles `slot_lora_name`), else the settings'."""
    return settings.lora_path if sample.adapter is None else f"__miles_slot_{sample.adapter.slot}"
