"""Names and chance: pure functions of what was asked, the same in every process and on every machine."""

from hashlib import blake2b, sha256, shake_128
from random import Random
from typing import Protocol

from miles_sim.engine.sampling import Sampling


def asked_key(prompt: bytes, last_text: str, sampling: Sampling, lora: str | None = None) -> bytes:
    """16 bytes that are equal for, and only for, requests that ask the very same thing of the very same adapter.

    `prompt`: its ids, packed.
    """
    text, params = last_text.encode(errors="surrogatepass"), sampling.key
    adapter = b"" if lora is None else b"/" + lora.encode(errors="surrogatepass")
    lengths = b"%d/%d/%d/" % (len(prompt), len(text), len(params))
    return sha256(b"".join((lengths, prompt, text, params, adapter))).digest()[:16]


def reply_key(seed: int, asked: bytes, attempt: int) -> bytes:
    """16 bytes from which everything in one reply is drawn."""
    return blake2b(b"%d/%d/" % (seed, attempt) + asked, digest_size=16).digest()


def names_key(key: bytes, engine: int) -> bytes:
    """From which the engine of that number draws ids, itself one: the same reply has another at each."""
    return blake2b(b"engine %d/" % engine + key, digest_size=16).digest() if engine else key


def chance(key: bytes, purpose: str) -> Random:
    """A generator of its own for each purpose, so that one part of a reply never shifts another."""
    return Random(blake2b(key + purpose.encode(), digest_size=16).digest())


class Stream:
    """As `chance`, where bytes are all that is needed: a generator takes thrice as long to begin. Costs all that was
    read before, so read it in few pieces."""

    def __init__(self, key: bytes, purpose: str) -> None:
        self._bytes = shake_128(key + purpose.encode())
        self._read = 0

    def randbytes(self, n: int, /) -> bytes:
        start, self._read = self._read, self._read + n
        return self._bytes.digest(self._read)[start:]


class Chances(Protocol):
    """Where random bytes come from."""

    def randbytes(self, n: int, /) -> bytes: ...


def name(key: bytes, purpose: str, length: int) -> str:
    """`length` hexadecimal characters, at most 64."""
    return blake2b(key + purpose.encode(), digest_size=32).hexdigest()[:length]
