"""A `/generate` request as SGLang reads it (io_struct.py): one prompt or a batch, each with all that it asks for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from miles_sim.engine.errors import CrashError, NotModelledError, RequestError
from miles_sim.engine.request import Lax
from miles_sim.engine.wire import Want

MOST_ANSWERS = 4_096
"""Answers to one request: prompts, each `n` times."""

Flag = bool | list[bool]
Number = int | list[int]
Name = str | list[str]


class GenerateRequest(Lax):
    """The fields of SGLang's `GenerateReqInput` that decide an answer here."""

    text: str | list[str] | None = None
    input_ids: list[int] | list[list[int]] | None = None
    sampling_params: dict[str, Any] | list[dict[str, Any]] | None = None
    rid: Name | None = None
    lora_path: str | list[str | None] | None = None
    extra_key: Name | None = None
    cache_salt: Name | None = None
    stream: bool = False
    return_logprob: Flag | None = None
    logprob_start_len: Number | None = None
    top_logprobs_num: Number | None = None
    token_ids_logprob: list[int] | list[list[int] | None] | None = None
    return_text_in_logprobs: bool = False
    return_hidden_states: Flag | str | list[Any] = False
    return_routed_experts: bool = False
    routed_experts_start_len: int = 0
    return_indexer_topk: bool = False
    return_prompt_token_ids: bool = False
    require_reasoning: bool = False


@dataclass(frozen=True)
class Single:
    """One answer that a request asks for."""

    text: str | None
    input_ids: Sequence[int] | None
    params: Mapping[str, Any]
    want: Want
    rid: str | None
    lora: str | None
    extra_key: str | None


@dataclass(frozen=True)
class Batch:
    """All that a request asks for."""

    singles: tuple[Single, ...]
    whole: bool
    """The answer is one object, no list."""


def expand(request: GenerateRequest) -> Batch:
    """A batch prompt by prompt, each `n` times; `RequestError` for what does not go together, `CrashError` for what
    SGLang itself falls over (io_struct.py `normalize_batch_and_arguments`)."""
    prompts, whole = _prompts(request)
    n = _samples(request.sampling_params)
    if len(prompts) * n > MOST_ANSWERS:
        raise NotModelledError("n", len(prompts) * n, f"up to {MOST_ANSWERS} answers to a request")
    if n > 1:
        whole = False
    columns = _Columns(request, len(prompts), n, whole)
    singles = [
        Single(
            text=prompt if isinstance(prompt, str) else None,
            input_ids=None if isinstance(prompt, str) else prompt,
            params=columns.params(place),
            want=columns.want(place),
            rid=columns.rid(place),
            lora=columns.each("lora_path", request.lora_path, place),
            extra_key=columns.extra_key(place),
        )
        for place, prompt in enumerate(prompts)
        for _ in range(1 if whole else n)
    ]
    _check_rids(request.rid)
    return Batch(tuple(singles), whole)


Prompt = str | Sequence[int]


def _prompts(request: GenerateRequest) -> tuple[list[Prompt], bool]:
    """The prompts, and whether it is a single one. Ids win over text; the text says how many there are."""
    text, ids = request.text, request.input_ids
    if text is None and ids is None:
        raise RequestError("Either text, input_ids or input_embeds should be provided.")
    if ids is not None and not ids and text is None:
        raise RequestError("input_ids cannot be empty.")
    given = text if ids is None else ids
    single = isinstance(text, str) if text is not None else not isinstance(ids and ids[0], list)
    if ids is not None and text is not None:
        fits = isinstance(ids and ids[0], list) is not single and (single or len(ids) >= len(text))
        if not fits:
            raise NotModelledError("input_ids", ids, "beside text, as many prompts as it has")
        given = ids if single else ids[: len(text)]
    if single:
        return [given], True  # type: ignore[list-item]
    return list(given or ()), False  # type: ignore[arg-type]


def _samples(params: Any) -> int:
    """`n`, the same for all prompts."""
    if params is None:
        return 1
    every = params if isinstance(params, list) else [params]
    if not every:
        raise CrashError("sampling_params: an empty list")
    counts = [entry.get("n", 1) for entry in every]
    if any(count != counts[0] for count in counts):
        raise RequestError("The parallel_sample_num should be the same for all samples in sample params.")
    n = 1 if counts[0] is None and len(counts) == 1 else counts[0]
    if not isinstance(n, int):
        raise CrashError(f"n: {n!r} is no number")
    return n


def _check_rids(rid: Any) -> None:
    if isinstance(rid, list):
        twice = [name for name, count in Counter(rid).items() if count > 1]
        if twice:
            raise RequestError(f"Duplicate request IDs detected within the request: {twice}")


class _Columns:
    """Fields that are given once, or once for each prompt."""

    def __init__(self, request: GenerateRequest, prompts: int, n: int, whole: bool) -> None:
        self._request, self._prompts, self._n, self._whole = request, prompts, n, whole
        if isinstance(request.rid, list) and not whole and len(request.rid) != prompts:
            raise RequestError("The specified rids length mismatch with the batch_size for batch processing.")
        if isinstance(request.extra_key, list) and not whole and len(request.extra_key) != prompts:
            raise RequestError("The length of extra_key should be equal to the batch size.")

    def each(self, field: str, value: Any, place: int) -> Any:
        """The value for that prompt; a list where one value is due, or one that is too short, crashes SGLang."""
        if not isinstance(value, list):
            return value
        if self._whole or place >= len(value):
            raise CrashError(f"{field}: a list of {len(value)} does not fit")
        return value[place]

    def params(self, place: int) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.each("sampling_params", self._request.sampling_params, place) or {}
        return found

    def rid(self, place: int) -> str | None:
        rid = self._request.rid
        if rid is None or self._n > 1:
            return None
        if isinstance(rid, str):
            return rid if self._whole else f"{rid}_{place}"
        found: str = self.each("rid", rid, place)
        return found

    def extra_key(self, place: int) -> str | None:
        keys = [self.each(name, getattr(self._request, name), place) for name in ("cache_salt", "extra_key")]
        return "".join(key for key in keys if key) or None

    def want(self, place: int) -> Want:
        request = self._request
        logprobs = self._listed("return_logprob", place) or False
        start = self._listed("logprob_start_len", place)
        token_ids = self._token_ids(place)
        return Want(
            logprobs=logprobs,
            logprob_start=-1 if start is None or not logprobs else start,
            top_logprobs=self._listed("top_logprobs_num", place) or 0,
            token_ids=token_ids,
            texts=request.return_text_in_logprobs,
            routed_experts=request.return_routed_experts,
            routed_experts_start=request.routed_experts_start_len,
            indexer_topk=request.return_indexer_topk,
            prompt_token_ids=request.return_prompt_token_ids,
        )

    def _listed(self, field: str, place: int) -> Any:
        value = getattr(self._request, field)
        if isinstance(value, list) and self._n > 1:
            raise RequestError(f"Cannot use list {field} with parallel_sample_num > 1")
        return self.each(field, value, place)

    def _token_ids(self, place: int) -> tuple[int, ...] | None:
        value: Any = self._request.token_ids_logprob
        if not value:
            return None
        if isinstance(value[0], list) or value[0] is None:
            if self._n > 1:
                raise RequestError("Cannot use list token_ids_logprob with parallel_sample_num > 1")
            value = self.each("token_ids_logprob", value, place)
        return tuple(value) if value else None
