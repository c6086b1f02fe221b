"""Names and chance: pure functions of what was asked, the same in every process and on every machine."""

import _random
from hashlib import blake2b, sha512
from random import Random
from typing import TYPE_CHECKING, Protocol

import numpy as np

from miles_sim.engine.sampling import Sampling

if TYPE_CHECKING:
    import numpy.typing as npt


def asked_key(prompt: bytes, last_text: str, sampling: Sampling, lora: str | None = None) -> bytes:
    """16 bytes that are equal for, and only for, requests that ask the very same thing of the very same adapter.

    `prompt`: its ids, packed.
    """
    parts = [last_text.encode(errors="surrogatepass"), sampling.key]
    if lora is not None:
        parts.append(lora.encode(errors="surrogatepass"))
    asked = blake2b(len(prompt).to_bytes(8, "little"), digest_size=16)
    asked.update(prompt)
    asked.update(b"".join([len(part).to_bytes(8, "little") + part for part in parts]))
    return asked.digest()


def reply_key(seed: int, asked: bytes, attempt: int) -> bytes:
    """16 bytes from which everything in one reply is drawn."""
    return blake2b(b"%d/%d/" % (seed, attempt) + asked, digest_size=16).digest()


def names_key(key: bytes, engine: int) -> bytes:
    """From which the engine of that number draws ids: the same reply has another id at each."""
    return blake2b(b"engine %d/" % engine + key, digest_size=16).digest() if engine else key


def chance(key: bytes, purpose: str) -> Random:
    """A generator of its own for each purpose, so that one part of a reply never shifts another."""
    return Random(blake2b(key + purpose.encode(), digest_size=16).digest())


class Stream:
    """The bytes of `chance(key, purpose)` without all else that a generator can, which takes longer to set up."""

    def __init__(self, key: bytes, purpose: str) -> None:
        seed = blake2b(key + purpose.encode(), digest_size=16).digest()
        # As `Random.seed` makes a number of bytes; `Random` itself would be seeded twice.
        self._bits = _random.Random(int.from_bytes(seed + sha512(seed).digest(), "big")).getrandbits

    def randbytes(self, n: int, /) -> bytes:
        return self._bits(8 * n).to_bytes(n, "little")


class Chances(Protocol):
    """Where random bytes come from."""

    def randbytes(self, n: int, /) -> bytes: ...


def name(key: bytes, purpose: str, length: int) -> str:
    """`length` hexadecimal characters, at most 64."""
    return blake2b(key + purpose.encode(), digest_size=32).hexdigest()[:length]


def words(random: Chances, count: int) -> "npt.NDArray[np.uint32]":
    """`count` numbers of 32 bits; fewer are a prefix of more."""
    return np.frombuffer(random.randbytes(4 * count), dtype="<u4")
