"""A reply of the engine as a document that can be spoiled: chat completion, completion or `/generate`, any release."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from miles_sim.faults.strike import Answer, CannotStrike


@dataclass(frozen=True)
class Slot:
    """One place in a document."""

    holder: Any
    """A dict or a list."""
    key: Any

    @property
    def value(self) -> Any:
        return self.holder[self.key]

    def set(self, value: Any) -> None:
        self.holder[self.key] = value

    def remove(self) -> None:
        del self.holder[self.key]


class ReplyBody:
    """The document of one reply.

    Methods that look for something raise `CannotStrike` where the reply does not have it.
    """

    def __init__(self, document: Any) -> None:
        self.document = document
        """What is sent in the end; an edit may put another one in its place."""
        self.kind: Literal["chat", "completion", "generate"] = _kind(document)

    def entries(self) -> list[dict[str, Any]]:
        """Its choices; of `/generate` its one generation, or those of a batch."""
        if self.kind == "generate":
            return self.document if isinstance(self.document, list) else [self.document]
        return list(self.document["choices"])

    def metas(self) -> list[dict[str, Any]]:
        """Each `meta_info`."""
        return self._some([e["meta_info"] for e in self.entries() if isinstance(e.get("meta_info"), dict)], "meta_info")

    def meta(self, name: str) -> list[Slot]:
        """`name` in each `meta_info`."""
        return self._some([Slot(meta, name) for meta in self.metas() if name in meta], f"meta_info.{name}")

    def logprobs(self) -> list[Slot]:
        """Every list that holds one logprob a sampled id, whatever shape its items have."""
        return self._some(list(self._logprobs()), "logprobs")

    def logprob_items(self, position: int) -> list[Slot]:
        """The logprob at that position of the sampled ids, wherever it is spelled; negative: from the end."""
        found = []
        for slot in self.logprobs():
            item = _item(slot.value, position)
            if isinstance(item.value, list):
                item = Slot(item.value, 0)
            elif isinstance(item.value, dict):
                item = Slot(item.value, "logprob")
            found.append(item)
        return found

    def id_items(self, position: int) -> list[Slot]:
        """The sampled id at that position, wherever it is spelled."""
        pairs = [Slot(_item(slot.value, position).value, 1) for slot in self.logprobs() if _pairs(slot)]
        flat = [_item(slot.value, position) for slot in self._flat_ids()]
        return self._some(pairs + flat, "sampled ids")

    def flat_ids(self) -> list[Slot]:
        """Sampled ids that stand beside those of the logprobs."""
        return self._some(list(self._flat_ids()), "output_ids")

    def finish_reasons(self) -> list[Slot]:
        """As a consumer of this route reads it: of the choice, or of `meta_info`."""
        holders = self.metas() if self.kind == "generate" else self.entries()
        return self._some([Slot(h, "finish_reason") for h in holders if "finish_reason" in h], "finish_reason")

    def response_ids(self) -> list[Slot]:
        """The id of the reply."""
        metas = [e["meta_info"] for e in self.entries() if isinstance(e.get("meta_info"), dict)]
        holders = metas if self.kind == "generate" else [self.document, *metas]
        return self._some([Slot(h, "id") for h in holders if "id" in h], "id")

    def messages(self) -> list[Slot]:
        """The message of each choice."""
        return self._some([Slot(e, "message") for e in self.entries() if "message" in e], "message")

    def tool_calls(self) -> list[Slot]:
        """The calls of each message that has any."""
        found = [Slot(m.value, "tool_calls") for m in self.messages() if m.value.get("tool_calls")]
        return self._some(found, "tool call")

    def replay(self, name: str) -> list[Slot]:
        """Replay rows of that name, in `meta_info` and wherever else they stand."""
        holders = [e["meta_info"] for e in self.entries() if isinstance(e.get("meta_info"), dict)]
        if self.kind != "generate" and isinstance(self.document.get("sglext"), dict):
            holders.append(self.document["sglext"])
        return self._some([Slot(h, name) for h in holders if isinstance(h.get(name), str) and h[name]], name)

    def versions(self, name: str) -> list[Slot]:
        """`weight_version` or `weight_versions`, in `meta_info` and in `metadata`."""
        holders = [e["meta_info"] for e in self.entries() if isinstance(e.get("meta_info"), dict)]
        if self.kind != "generate" and isinstance(self.document.get("metadata"), dict):
            holders.append(self.document["metadata"])
        return [Slot(h, name) for h in holders if h.get(name) is not None]

    def some_versions(self) -> list[Slot]:
        return self._some(self.versions("weight_version") + self.versions("weight_versions"), "weight version")

    def _logprobs(self) -> Iterator[Slot]:
        for entry in self.entries():
            meta, told = entry.get("meta_info"), entry.get("logprobs")
            if isinstance(meta, dict) and meta.get("output_token_logprobs"):
                yield Slot(meta, "output_token_logprobs")
            for name in ("content", "token_logprobs"):
                if isinstance(told, dict) and told.get(name):
                    yield Slot(told, name)

    def _flat_ids(self) -> Iterator[Slot]:
        for entry in self.entries():
            for name in ("output_ids", "response_token_ids"):
                if entry.get(name):
                    yield Slot(entry, name)
        extension = None if self.kind == "generate" else self.document.get("sglext")
        if isinstance(extension, dict) and extension.get("output_ids"):
            yield from (Slot(extension["output_ids"], n) for n, ids in enumerate(extension["output_ids"]) if ids)

    def _some(self, found: list[Any], what: str) -> list[Any]:
        if not found:
            raise CannotStrike(f"the {self.kind} reply has no {what}")
        return found


def spoiled(answer: Answer, edit: Callable[[ReplyBody], None]) -> Answer:
    """The answer with its document edited; `CannotStrike` where it is no reply, or is a stream."""
    body = read_reply(answer)
    edit(body)
    # Not orjson: it would spell NaN as null.
    text = json.dumps(body.document, ensure_ascii=False, separators=(",", ":"))
    return Answer(answer.status, text.encode(), answer.headers)


def read_reply(answer: Answer) -> ReplyBody:
    """The reply in an answer; `CannotStrike` where there is none."""
    if answer.status != 200:
        raise CannotStrike(f"the engine answered with status {answer.status}")
    kind = next((value for name, value in answer.headers if name.lower() == "content-type"), "application/json")
    if "json" not in kind:
        raise CannotStrike(f"the body is {kind}, not one JSON document")
    try:
        return ReplyBody(orjson.loads(answer.body))
    except orjson.JSONDecodeError as error:
        raise CannotStrike(f"the body is no JSON: {error}") from None


def _kind(document: Any) -> Literal["chat", "completion", "generate"]:
    if isinstance(document, list) and document and all(isinstance(e, dict) and "meta_info" in e for e in document):
        return "generate"
    if isinstance(document, dict):
        choices = document.get("choices")
        if isinstance(choices, list) and choices and all(isinstance(choice, dict) for choice in choices):
            return "chat" if "message" in choices[0] else "completion"
        if isinstance(document.get("meta_info"), dict):
            return "generate"
    raise CannotStrike("the body is no generation")


def _pairs(slot: Slot) -> bool:
    return isinstance(slot.value[0], list)


def _item(items: list[Any], position: int) -> Slot:
    if not -len(items) <= position < len(items):
        raise CannotStrike(f"position {position} of {len(items)} sampled ids")
    return Slot(items, position)
