"""Withhold recalled items from sessions at random, so that the worth of an item can be measured.

Items are recalled where things go well or badly anyway, so success with an item beside success without it says nothing
of the item. A randomised experiment does (in recommender systems: holdout or exploration). The draw is a hash of the
session and the item. It needs no state, is the same in the agent, in a replay and in an analysis, and holds throughout
a session. Draws of two items are independent, so items that are recalled together do not bias each other's figure.
"""

from __future__ import annotations

from functools import lru_cache

from fleetlore.stats.hashing import drawn


# Asked anew at every step of a session.
@lru_cache(maxsize=16_384)
def withheld(session: str, item_id: str, share: float) -> bool:
    """Whether an item that was recalled is kept from this session.

    Args:
        share: of the draws that withhold, 0..1. What is withheld at one share is also withheld at every larger one.
    """
    return drawn(f"holdout\x1f{session}\x1f{item_id}", share)
