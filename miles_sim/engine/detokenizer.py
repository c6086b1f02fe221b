"""A reply's text as it grows, held back where a character is not whole (SGLang's detokenizer_manager.py)."""

from collections.abc import Sequence

from miles_sim.engine.finish import Trim, text_of
from miles_sim.engine.flight import Reason
from miles_sim.tokenizer import ByteTokenizer

_BROKEN = "\ufffd"
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class TextStream:
    """The text of one streamed reply. What was let out is never taken back (`pace.Tail` keeps back what may be the
    beginning of a stop string). Nor is anything let out twice, which SGLang does where a step of several ids ends
    within a character twice in a row."""

    def __init__(self, tokenizer: ByteTokenizer, trim: Trim) -> None:
        self._tokenizer = tokenizer
        self._trim = trim
        self._pending: list[int] = []
        """Ids whose text is not settled."""
        self._settled = 0
        """Characters of the text before them."""
        self._ahead = 0
        """Characters of theirs that were let out."""

    def push(self, ids: Sequence[int]) -> str:
        """What can be told after these ids too."""
        self._pending.extend(ids)
        text = self._tokenizer.decode(self._pending, skip_special_tokens=self._trim.skip_special_tokens)
        if text and not text.endswith(_BROKEN):
            said = text[self._ahead :]
            self._pending, self._settled, self._ahead = [], self._settled + len(text), 0
            return said
        printable = _printable(text)
        said = printable[self._ahead :]
        self._ahead = max(self._ahead, len(printable))
        return said

    def end(self, output_ids: Sequence[int], reason: Reason) -> str:
        """What is left to tell of the whole output."""
        text = text_of(output_ids, reason, self._tokenizer, self._trim)
        return text[self._settled + self._ahead :]


def _printable(text: str) -> str:
    """The whole words of a text that breaks off (sglang utils.py `find_printable_text`)."""
    if text.endswith("\n") or _is_ideograph(text[-1:]):
        return text
    return text[:-1] if _is_ideograph(text[-2:-1]) else text[: text.rfind(" ") + 1]


def _is_ideograph(character: str) -> bool:
    return bool(character) and any(first <= ord(character) <= last for first, last in _IDEOGRAPHS)
