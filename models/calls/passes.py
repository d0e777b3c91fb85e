"""Learn the window of sessions in slices: the newest at once, and the whole window in a second pass.

A pass learns in order and only goes on: it cannot add a late session or drop one. So a second pass learns the window
from nothing, with most of each slice, until it replaces the first. A version is a function of the set of sessions that
its pass learned, however they were sliced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from models.calls.training import CallTraining, TrainedCalls
from models.calls.window import KeptSession

__all__ = ["Passes"]

# The share of a slice for the newest sessions while a second pass learns the window.
_NEWEST_SHARE = 0.25


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
        # Evenly spread and with the newest. Ids do not decide, because a sender chooses them.
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

    def skip(self) -> None:
        """Let only the newest session wait. The second pass learns the others."""
        self.waiting = self.waiting[-1:]


class Passes:
    """The pass that serves, and the one that learns the window anew. `training`: makes an empty pass."""

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
        """Learn about `most` sessions of the window, and return their number.

        Args:
            chosen: the window, oldest first.
            pace: called after each session.
            is_late: asked after each session. Once true, only the newest session is learned before the return.
        """
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
            self._serving.skip()
            learned += self._serving.learn(1, pace, is_late)
        return learned

    def version(self) -> TrainedCalls:
        return self._serving.training.version()
