"""Hash a text and draw by it: the same in every process, so a draw needs no state and a replay draws again alike."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

HASHES: Final = 2**52  # a hash fits a JSON number exactly (an IEEE double has 53 bits)


def stable_hash(text: str) -> int:
    """52-bit hash of a text, equal in every process and on every machine."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 12


def user_hash(user: str) -> str:
    """The only name that the pipeline keeps of a user: 13 hex digits."""
    return f"{stable_hash(user):013x}"


def drawn(key: str, share: float) -> bool:
    """Draw a key with probability `share`, 0..1. What one share draws, every larger one draws as well."""
    return share > 0 and stable_hash(key) < share * HASHES
