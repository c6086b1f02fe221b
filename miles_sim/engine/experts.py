"""Routed experts and indexer rows of an engine: settings, the truth of a generation, and the payload on the wire."""

import base64
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from miles_sim.document import Document
from miles_sim.engine.errors import RequestError
from miles_sim.ledger import WeightSpan
from miles_sim.rows import RowsTruth, rows, salt


class Experts(Document):
    """A mixture-of-experts model, served with `--enable-return-routed-experts`."""

    layers: int = Field(default=2, ge=1, le=1_024)
    """Every layer has a row, as in SGLang's capturer."""
    topk: int = Field(default=2, ge=1, le=1_024)
    experts: int = Field(default=16, ge=1, le=65_536)
    prefill: Literal["same", "other"] = "same"
    """`other`: a prefill routes ids otherwise than decoding did, as kernels that are not batch invariant do: what a
    later prompt reports for ids that were sampled before is recognisable."""

    @model_validator(mode="after")
    def _distinct(self) -> "Experts":
        if self.topk > self.experts:
            raise ValueError(f"topk: {self.topk} is more than the {self.experts} experts")
        return self


class Indexer(Document):
    """A model with an attention indexer, served with `--enable-return-indexer-topk`."""

    layers: int = Field(default=2, ge=1, le=1_024)
    topk: int = Field(default=4, ge=1, le=65_536)
    prefill: Literal["same", "other"] = "same"
    """As for experts."""


def experts_truth(
    settings: Experts | Indexer,
    *,
    seed: int,
    prompt_tokens: int,
    weight_version: str,
    spans: Sequence[WeightSpan] = (),
) -> RowsTruth:
    """What the rows of one generation follow from.

    Rows `0..prompt_tokens - 1` are prefilled, the last of them gives the first sampled id: sampled id `k` and row
    `prompt_tokens - 1 + k` come from one forward pass, and so from one version of the weights. `spans`: as in
    `Generation.weight_versions`.
    """
    kind: Literal["experts", "indexer"] = "experts" if isinstance(settings, Experts) else "indexer"
    prefill = "prefill" if settings.prefill == "other" else "decode"
    first = spans[0].version if spans else weight_version
    changes = {0: salt(seed, kind, first, prefill), prompt_tokens: salt(seed, kind, first, "decode")}
    for span in spans[1:]:
        changes[prompt_tokens - 1 + span.start] = salt(seed, kind, span.version, "decode")
    return RowsTruth(
        layers=settings.layers,
        topk=settings.topk,
        experts=settings.experts if isinstance(settings, Experts) else None,
        salts=tuple(sorted(changes.items())),
    )


def payload(truth: RowsTruth, ids: Sequence[int], *, start: int = 0) -> str:
    """Rows of prompt and output ids as `meta_info` carries them: base64 of little-endian int32, C order.

    `len(ids) - 1 - start` rows (SGLang batch_result_processor.py `_maybe_collect_routed_experts`).
    """
    return base64.b64encode(rows(truth, ids, start=start).astype("<i4").tobytes()).decode()


def check_start(start: int, prompt_tokens: int) -> None:
    """`RequestError` for a `routed_experts_start_len` outside of the prompt (SGLang scheduler.py)."""
    if start < 0:
        raise RequestError(
            f"recv_req.routed_experts_start_len={start} is lower than 0. "
            "Please use a non-negative routed_experts_start_len."
        )
    if start > prompt_tokens:
        raise RequestError(
            f"recv_req.routed_experts_start_len={start} is higher than the number of input tokens "
            f"len(req.origin_input_ids)={prompt_tokens}. Please use a smaller routed_experts_start_len."
        )
