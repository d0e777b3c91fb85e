"""Keep the sessions that a version of the call model is learned from: the newest, and not too many of one agent.

The choice is a function of the set of sessions, not of their order or of how often they came.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fleetlore.wire.principals import principal_of
from fleetlore.wire.trajectory import Trajectory

__all__ = ["SESSIONS", "KeptSession", "SessionWindow", "first_offsets"]

SESSIONS = 10_000
# One agent has at most this share of the window, however much it sends.
_AGENT_SHARE = 0.25
# Or so many sessions, if the others have fewer.
AGENT_SESSIONS = 50


class KeptSession(NamedTuple):
    ended: float
    id: str
    agent: str
    revision: tuple[int, float]
    partition: int
    offset: int
    packed: bytes
    came: float

    def session(self) -> Trajectory:
        return Trajectory.from_json(zlib.decompress(self.packed))


class SessionWindow:
    def __init__(self, most: int = SESSIONS) -> None:
        self._most = most
        self._kept: dict[str, KeptSession] = {}

    def add(self, session: Trajectory, partition: int, offset: int) -> bool:
        """Keep a session in place of its older revision; False if it is known or made no call."""
        known = self._kept.get(session.id)
        if not session.calls or (known is not None and known.revision >= session.revision):
            return False
        packed = zlib.compress(session.to_json(), 1)
        named = session.ended, session.id, principal_of(session.agent), session.revision
        self._kept[session.id] = KeptSession(*named, partition, offset, packed, session.came)
        if len(self._kept) >= 2 * self._most:
            self._prune()
        return True

    def forget_before(self, partition: int, offset: int) -> None:
        """Drop what older records of a partition brought: a restart does not read them again."""
        old = [each.id for each in self._kept.values() if each.partition == partition and each.offset < offset]
        for session in old:
            del self._kept[session]

    def forget(self, unwanted: Callable[[KeptSession], bool]) -> None:
        self._kept = {id: each for id, each in self._kept.items() if not unwanted(each)}

    def chosen(self) -> list[KeptSession]:
        """The sessions to learn from, oldest first.

        An agent has at most a third of the sessions that all others have, which is a quarter of the window. A fleet's
        only agent has all.
        """
        self._prune()
        sessions = Counter(each.agent for each in self._kept.values())
        most = {
            agent: max(AGENT_SESSIONS, int((len(self._kept) - count) * _AGENT_SHARE / (1 - _AGENT_SHARE)))
            for agent, count in sessions.items()
        }
        return list(_newest(self._kept.values(), most if len(most) > 1 else dict(sessions), self._most))[::-1]

    def _prune(self) -> None:
        most = int(self._most * _AGENT_SHARE)
        agents = {each.agent for each in self._kept.values()}
        newest = _newest(self._kept.values(), dict.fromkeys(agents, most), self._most)
        self._kept = {each.id: each for each in newest}


def first_offsets(sessions: Iterable[KeptSession]) -> dict[int, int]:
    """By partition, the oldest record that holds one of the sessions."""
    firsts: dict[int, int] = {}
    for each in sessions:
        firsts[each.partition] = min(each.offset, firsts.get(each.partition, each.offset))
    return firsts


def _newest(sessions: Iterable[KeptSession], most_of: dict[str, int], most: int) -> Iterable[KeptSession]:
    taken: Counter[str] = Counter()
    for each in sorted(sessions, reverse=True):
        if taken.total() >= most:
            return
        if taken[each.agent] < most_of[each.agent]:
            taken[each.agent] += 1
            yield each
