"""Hash texts and draw by hash: equal in every process, so draws need no state and replays repeat them."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final
from unicodedata import normalize

HASHES: Final = 2**52  # exact in a JSON number (an IEEE double has 53 bits)


def stable_hash(text: str) -> int:
    """Return a 52-bit hash of a text, equal on every machine."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 12


cached_hash = lru_cache(maxsize=16_384)(stable_hash)


def user_hash(user: str) -> str:
    """Return the pipeline's only name of a user: 13 hex digits of the composed Unicode form (NFC)."""
    return f"{stable_hash(normalize('NFC', user)):013x}"


def drawn(key: str, share: float) -> bool:
    """Draw a key with probability `share`, 0..1. A larger share draws the same keys and more."""
    return share > 0 and stable_hash(key) < share * HASHES


@lru_cache(maxsize=16_384)  # called at every step
def withheld(session: str, id: str, share: float) -> bool:
    """Whether a tip is withheld from this session, to measure its effect: only a randomised holdout can, because advice
    is shown in easy and hard sessions. A larger `share` withholds the same draws and more.
    """
    return drawn(f"holdout\x1f{session}\x1f{id}", share)
