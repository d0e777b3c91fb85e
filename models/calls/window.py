"""Keep the sessions that the call model learns from: the newest, and not too many of one agent.

`Passes` learn them in slices: the newest at once, and the whole window in a second pass. A pass learns in order and
cannot add a late session or drop one. So the second one learns from nothing, until it replaces the first.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from fleetlore.wire.principals import principal_of
from fleetlore.wire.trajectory import Trajectory
from models.calls.training import CallTraining, TrainedCalls

__all__ = ["SESSIONS", "KeptSession", "Passes", "SessionWindow", "first_offsets"]

SESSIONS = 10_000
_AGENT_SHARE = 0.25
AGENT_SESSIONS = 50
_NEWEST_SHARE = 0.25


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
    """Sessions leave by an agent's own later ones, or by later ones of several agents: records alone push none out."""

    def __init__(self, most: int = SESSIONS) -> None:
        self._most = most
        self._kept: dict[str, KeptSession] = {}

    def add(self, session: Trajectory, partition: int, offset: int) -> bool:
        """Keep a session's newest revision; False if it is known or made no call."""
        known = self._kept.get(session.id)
        if not session.calls or (known is not None and known.revision >= session.revision):
            return False
        packed = zlib.compress(session.to_json(), 1)
        named = session.ended, session.id, principal_of(session.agent), session.revision
        self._kept[session.id] = KeptSession(*named, partition, offset, packed, session.came)
        if len(self._kept) >= 2 * self._most:
            self._prune()
        return True

    def forget(self, unwanted: Callable[[KeptSession], bool]) -> None:
        self._kept = {id: each for id, each in self._kept.items() if not unwanted(each)}

    def chosen(self) -> list[KeptSession]:
        """The sessions to learn from, oldest first: at most a quarter of them of one agent among several."""
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


class _Pass:
    def __init__(self, training: CallTraining, waiting: Sequence[KeptSession] = ()) -> None:
        self.training = training
        self.sessions: list[KeptSession] = []
        self.waiting = list(waiting)

    def extend(self, chosen: Sequence[KeptSession], most: int) -> None:
        known = [*self.sessions, *self.waiting]
        ids = {each.id for each in known}
        newer = [each for each in chosen if each.id not in ids and (not known or each > known[-1])]
        count = min(most, len(newer))
        # Evenly spread, with the newest. Senders choose ids, so these do not decide.
        self.waiting += [newer[-1 - place * len(newer) // count] for place in reversed(range(count))]

    def learn(self, most: int, pace: Callable[[], object], is_late: Callable[[], bool]) -> int:
        count = 0
        while self.waiting and count < most and not (count and is_late()):
            session = self.waiting.pop(0)
            self.training.learn(session.session())
            self.sessions.append(session)
            count += 1
            pace()
        return count


class Passes:
    def __init__(self, training: Callable[[], CallTraining] = CallTraining) -> None:
        self._training = training
        self._serving = _Pass(training())
        self._anew: _Pass | None = None

    @property
    def sessions(self) -> Sequence[KeptSession]:
        return self._serving.sessions

    @property
    def catches_up(self) -> bool:
        return self._anew is not None

    def learn(
        self,
        chosen: Sequence[KeptSession],
        most: int,
        pace: Callable[[], object] = lambda: None,
        is_late: Callable[[], bool] = lambda: False,
    ) -> int:
        """Learn about `most` sessions, oldest first, and return their number. Once late, learn only the newest."""
        if self._serving.sessions == chosen[: len(self._serving.sessions)]:
            self._anew = None
            self._serving.extend(chosen, most)
            return self._serve(most, pace, is_late)
        if self._anew is None:
            self._anew = _Pass(self._training(), chosen)
        if len(self._anew.waiting) > most:
            newest = max(1, int(most * _NEWEST_SHARE))
            self._anew.extend(chosen, newest)
            self._serving.extend(chosen, newest)
            return self._serve(newest, pace, is_late) + self._anew.learn(most - newest, pace, is_late)
        self._anew.extend(chosen, most - len(self._anew.waiting))
        self._serving, self._anew = self._anew, None
        return self._serve(most, pace, is_late)

    def _serve(self, most: int, pace: Callable[[], object], is_late: Callable[[], bool]) -> int:
        learned = self._serving.learn(most, pace, is_late)
        if learned < most and is_late():
            self._serving.waiting = self._serving.waiting[-1:]
            learned += self._serving.learn(1, pace, is_late)
        return learned

    def version(self) -> TrainedCalls:
        return self._serving.training.version()
