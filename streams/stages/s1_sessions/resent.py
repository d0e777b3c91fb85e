"""What holds a commit back though it is known already: sessions that begin anew with events that were sent a second time.

A worker that was started since, or has closed many sessions since, cannot tell such a session from a new one. Its end lies before
the commit and does not come again, so where nobody sends any more it would hold the commit back for ever. But its judgment is in
the store and says how far the session was known.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetlore.errors import StoreUnavailable
from models.judge.session_state import SessionState
from sinks.milvus import row_id
from streams.stage.base import Store
from streams.stages.s1_sessions.open_session import PART_EVENTS, OpenSession

# How long a session may hold a commit back before the store is asked about it; each time twice as long before the next.
FIRST_SECONDS = 5.0
LONGEST_SECONDS = 60.0
# Asked about at once, the oldest of a partition: what is sent again comes in records of many sessions.
MOST_SESSIONS = 256


class RedeliveryCheck:
    """When to ask about the sessions that hold one partition back."""

    def __init__(self) -> None:
        self._held_at: int | None = None
        self._pause = 0.0
        self._until = 0.0

    def note(self, held_at: int | None, now: float) -> None:
        """The commit is held back at this offset, by `Clock.monotonic`; or it is not (None)."""
        if held_at != self._held_at:
            self._held_at, self._pause, self._until = held_at, FIRST_SECONDS, now + FIRST_SECONDS

    def over(self, now: float) -> bool:
        return self._held_at is not None and now >= self._until

    def asked(self, now: float) -> None:
        self._pause = min(2 * self._pause, LONGEST_SECONDS)
        self._until = now + self._pause


async def known_to(store: Store, sessions: Sequence[OpenSession]) -> list[int | None]:
    """For each session up to which sequence all of it lies behind a judgment; None where it may still become one of its own.

    Where the store knows that a session ended but lacks events of it, that is where it begins: any event may be one of those.
    """
    ids = [row_id(each.tenant, each.id) for each in sessions]
    try:
        rows = await store.get("judgments", ids, "state")
    except StoreUnavailable:
        return [None] * len(ids)  # this can wait and events cannot
    return [_known_to(each, rows[id]["state"]) if id in rows else None for each, id in zip(sessions, ids, strict=True)]


def _known_to(session: OpenSession, state: str) -> int | None:
    known = SessionState.from_json(state).trajectory
    if known is None or known.agent != session.agent:
        return None
    first = session.part * PART_EVENTS
    if known.missing == 0 and max(session.sequences) < first + known.events:
        return first + known.events
    return None if known.ending == "continued" else first
