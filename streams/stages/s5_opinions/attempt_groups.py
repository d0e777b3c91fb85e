"""Remember the judged attempts of the last groups: the newest judgment of each attempt.

All judgments of a group lie on one partition (`streams.stages.s3_judgments.stage`), so one worker sees them. They are
kept in memory: of a group in the middle of a restart, only the attempts read after it are contrasted.
"""

from __future__ import annotations

from collections import OrderedDict

from fleetlore.wire.trajectory import Judgment

_MOST_GROUPS = 256
_MOST_ATTEMPTS = 64

Key = tuple[str, str]  # tenant, group


class AttemptGroups:
    """See the module."""

    def __init__(self) -> None:
        self._groups: OrderedDict[Key, dict[str, Judgment]] = OrderedDict()

    def add(self, tenant: str, judgment: Judgment) -> Key | None:
        """Remember a judgment; return its group's key if that changed the group."""
        trajectory = judgment.trajectory
        if not trajectory.group:
            return None
        key = tenant, trajectory.group
        attempts = self._groups.setdefault(key, {})
        self._groups.move_to_end(key)
        while len(self._groups) > _MOST_GROUPS:
            self._groups.popitem(last=False)
        known = attempts.get(trajectory.id)
        if known is not None and (known == judgment or known.trajectory.revision > trajectory.revision):
            return None
        if known is None and len(attempts) >= _MOST_ATTEMPTS:
            return None
        attempts[trajectory.id] = judgment
        return key

    def attempts(self, key: Key) -> list[Judgment]:
        """Return the attempts of a group, by session."""
        return [attempt for _, attempt in sorted(self._groups.get(key, {}).items())]

    def forget(self) -> None:
        self._groups.clear()
