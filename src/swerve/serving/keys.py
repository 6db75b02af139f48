"""Keys of queries: keyed hashes of their names, and the random streams that begin with them. Keyed hashes of other texts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from swerve.core import rng
from swerve_client.naming import key_text, without_arm

HEX = set("0123456789abcdef")
WORD = 8  # bytes
#: Begins a query's name that is its key.
KEY = "key:"


class Hash:
    """A keyed hash of texts in 64 bits, never 0. Without the key nobody can find two texts with equal hashes.

    >>> of = Hash(b"k" * 32, b"swerve result")
    >>> of("irma") == of("irma") != of("harvey")
    True
    """

    __slots__ = ("_state",)

    def __init__(self, key: bytes, purpose: bytes) -> None:
        self._state = hashlib.blake2b(key=key, digest_size=WORD, person=purpose)

    def __call__(self, text: str) -> int:
        state = self._state.copy()
        state.update(text.encode("utf-8", "surrogatepass"))
        return int.from_bytes(state.digest(), "little") or 1


def words_of(key: bytes) -> tuple[int, int]:
    """Return a key as two words."""
    return int.from_bytes(key[:WORD], "little"), int.from_bytes(key[WORD:], "little")


def owner_of(key: bytes) -> int:
    """Return the part of a key that its record carries. Every compiled call that writes checks it first."""
    return int.from_bytes(key[:WORD], "little", signed=True)


def signed(mask: int) -> int:
    """Return a 64-bit mask as the signed number that a compiled call takes.

    >>> signed(5), signed(1 << 63)
    (5, -9223372036854775808)
    """
    return mask - (1 << 64) if mask >= 1 << 63 else mask


class Keys:
    """Makes the keys under which queries are stored; `seed` is that of their random streams, None: they come from the key.

    >>> keys = Keys(b"k" * 32, None)
    >>> keys.of("boots\\0arm=control") == keys.rival(keys.of("boots")) != keys.of("boots")
    True
    """

    def __init__(self, query_key: bytes, seed: int | None) -> None:
        self._query_key, self._seed = query_key, seed
        self._keyed = hashlib.blake2b(key=query_key, digest_size=16)
        self._rival = hashlib.blake2b(key=query_key, digest_size=16, person=b"swerve control")

    def of(self, text: str) -> bytes:
        """Return the key under which a normalised query is stored."""
        plain = without_arm(text)
        state = self._keyed.copy()  # half the time of keying it anew
        state.update(plain.encode())
        return state.digest() if plain == text else self.rival(state.digest())

    def rival(self, key: bytes) -> bytes:
        """Return the key of a query's record for the policy of the control arm. The query's own key determines it, so that whoever
        deletes a query by its key reaches both records."""
        state = self._rival.copy()
        state.update(key)
        return state.digest()

    def named(self, text: str, parts: Mapping[str, str] | None = None) -> bytes:
        """Return the key of a query that a person names: by its text and parts, or by `key:` and its key in hexadecimal."""
        if len(text) == len(KEY) + 32 and text.startswith(KEY) and set(text[len(KEY) :]) <= HEX:
            return bytes.fromhex(text[len(KEY) :])
        return self.of(key_text(text, **(parts or {})))

    def word(self, text: str | None, key: bytes) -> int:
        """Return the random stream of a query. Without a seed it comes from the keyed hash: the record must not reveal the text."""
        if self._seed is None or text is None:
            secret = hashlib.blake2b(key, key=self._query_key, digest_size=8, person=b"swerve stream")
            return int.from_bytes(secret.digest(), "little")
        return rng.split(self._seed, "policy", text)
