"""Make the key of a session from its principal and its id.

Senders choose ids, and other agents may know or guess them. Every stage, row, count and erasure names a session by this
key, so the events of a second principal under the same id are another session.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from fleetlore.wire.principals import principal_of

__all__ = ["review_key", "session_key"]


@lru_cache(maxsize=16_384)
def session_key(agent: str, session: str, part: int = 0) -> str:
    """Return the key of a session of the agent's principal: 32 hex digits, and `#part` for a later part."""
    # No name contains the separator, so two pairs never give the same text.
    named = f"{principal_of(agent)}\x1f{session}".encode("utf-8", "surrogatepass")
    key = blake2b(named, digest_size=16).hexdigest()
    return key if part == 0 else f"{key}#{part}"


def review_key(session: str) -> str:
    """Return the key of what others said of an id: feedback names no agent, and counts for every session of the id."""
    return f"review/{session_key('', session)}"
