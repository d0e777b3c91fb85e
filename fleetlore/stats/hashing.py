"""Hash a text and draw by it: the same in every process, so a draw needs no state and a replay draws again alike."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final
from unicodedata import normalize

HASHES: Final = 2**52  # a hash fits a JSON number exactly (an IEEE double has 53 bits)


def stable_hash(text: str) -> int:
    """52-bit hash of a text, equal in every process and on every machine."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 12


def user_hash(user: str) -> str:
    """The only name that the pipeline keeps of a user: 13 hex digits.

    Systems write one name in different normal forms of Unicode. All of them have the hash of the composed form (NFC).
    """
    return f"{stable_hash(normalize('NFC', user)):013x}"


def drawn(key: str, share: float) -> bool:
    """Draw a key with probability `share`, 0..1. What one share draws, every larger one draws as well."""
    return share > 0 and stable_hash(key) < share * HASHES


@lru_cache(maxsize=16_384)  # asked anew at every step of a session
def withheld(session: str, id: str, share: float) -> bool:
    """Whether what would be shown is kept from this session, so that its worth can be measured.

    It is shown where things go well or badly anyway, so success with it beside success without it says nothing. A
    randomised experiment does (in recommender systems: holdout or exploration). The draw needs no state, is the same in
    the agent, in a replay and in an analysis, and holds throughout a session; two draws are independent.

    Args:
        id: of a tip or an item.
        share: of the draws that withhold, 0..1. What is withheld at one share is also withheld at every larger one.
    """
    return drawn(f"holdout\x1f{session}\x1f{id}", share)
