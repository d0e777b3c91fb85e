"""Randomised holdout: which recalled items a session is not shown, so that what an item is worth can be measured.

Items that are recalled often are recalled where things go well or badly anyway, so success with an item beside success
without it says nothing of the item. Withholding it at random does (a randomised experiment; in recommender systems: holdout
or exploration). The draw is a hash of the session and the item: it needs no state, is the same in the agent, in a replay and
in an analysis, and an item is either shown or withheld throughout a session. Draws of two items are independent, so items
that are recalled together do not stain each other's figure.
"""

from __future__ import annotations

from functools import lru_cache

from fleetlore.stats.hashing import drawn


@lru_cache(maxsize=16_384)  # asked anew at every step of a session
def withheld(session: str, item_id: str, share: float) -> bool:
    """Whether an item that was recalled is kept from this session.

    Args:
        share: of the draws that withhold, 0..1; 0 withholds nothing, 1 everything. What is withheld at one share is also
            withheld at every larger one.
    """
    return drawn(f"holdout\x1f{session}\x1f{item_id}", share)
