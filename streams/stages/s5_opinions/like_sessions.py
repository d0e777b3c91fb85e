"""Remember the judged sessions of like goals, and find for each that failed the one that succeeded and is most like it.

All judgments about one thing lie on one partition (`place_of`), so one worker sees them. They are kept in memory: in a
restart the last of each are forgotten, and what is asked then is asked about the session alone. Those of distrusted
agents are passed over, so that their words do not come back in a model's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping

from fleetlore.wire.trajectory import Judgment, Trajectory
from models.judge.session_state import notable
from streams.stage.distrusted import Distrusted
from streams.stages.s3_judgments.language_model import goal_words, place_of

_MOST_PLACES = 256
_MOST_OF_A_SIDE = 8
# Share of all their words that two goals hold both, from which they are like one another.
_LIKE = 0.5


class LikeSessions:
    """See the module."""

    def __init__(self, distrusted: Distrusted) -> None:
        self._distrusted = distrusted
        # By place: sessions by side and id.
        self._places: OrderedDict[tuple[str, str], dict[str, OrderedDict[str, Judgment]]] = OrderedDict()

    def add(self, tenant: str, judgment: Judgment) -> Iterator[tuple[Judgment, Judgment | None]]:
        """Remember a judgment; yield the failed sessions that it is news for, each with one that succeeded."""
        sides = self._sides(tenant, judgment)
        label, session = judgment.verdict.label, judgment.trajectory.id
        if not notable(judgment.verdict, label):
            return
        sides[label][session] = judgment
        while len(sides[label]) > _MOST_OF_A_SIDE:
            sides[label].popitem(last=False)
        if self._distrusted.holds(tenant, judgment.trajectory.agent):
            return
        succeeded = self._trusted(tenant, sides["success"])
        if label == "failure":
            yield judgment, _nearest(judgment, succeeded)
        else:
            for failed in self._trusted(tenant, sides["failure"]).values():
                if _nearest(failed, succeeded) is judgment:
                    yield failed, judgment

    def _sides(self, tenant: str, judgment: Judgment) -> dict[str, OrderedDict[str, Judgment]]:
        """Those of its place, without what was known of this very session."""
        key = tenant, place_of(judgment.trajectory)
        sides = self._places.setdefault(key, {"success": OrderedDict(), "failure": OrderedDict()})
        self._places.move_to_end(key)
        while len(self._places) > _MOST_PLACES:
            self._places.popitem(last=False)
        for side in sides.values():
            side.pop(judgment.trajectory.id, None)
        return sides

    def _trusted(self, tenant: str, side: Mapping[str, Judgment]) -> Mapping[str, Judgment]:
        return {id: each for id, each in side.items() if not self._distrusted.holds(tenant, each.trajectory.agent)}

    def forget(self) -> None:
        self._places.clear()


def _nearest(failed: Judgment, succeeded: Mapping[str, Judgment]) -> Judgment | None:
    ranked = [(_likeness(failed.trajectory, each.trajectory), id) for id, each in succeeded.items()]
    likeness, id = max(ranked, default=(0.0, ""))
    return succeeded[id] if likeness >= _LIKE else None


def _likeness(one: Trajectory, other: Trajectory) -> float:
    some, others = goal_words(one), goal_words(other)
    return len(some & others) / len(some | others) if some | others else 1.0
