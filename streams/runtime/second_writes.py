"""Write once more what was written first after an assignment.

A write that the previous owner had sent when its partitions moved away may land after the first writes of the new
owner: neither Milvus nor Kafka can refuse it. It lands within its deadline or never. So what is written in that time is
written again when it is over.
"""

from __future__ import annotations

from typing import Any

from fleetlore.clock import Clock
from sinks.producer import COMPACTED
from streams.stage.base import Effects, Outgoing


class SecondWrites:
    """Of all stages of a worker.

    Args:
        seconds: the longest deadline of a write.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until = 0.0
        # By stage: the newest row of each id, the newest value of each key.
        self._rows: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
        self._values: dict[str, dict[tuple[str, str, str], Outgoing]] = {}

    def begin(self) -> None:
        """Partitions were assigned anew."""
        self._until = self._clock.monotonic() + self._seconds
        self._rows.clear()
        self._values.clear()

    def owes(self, stage: str) -> bool:
        """Whether writes of the stage are due."""
        return bool(self._rows.get(stage) or self._values.get(stage)) and self._clock.monotonic() >= self._until

    def take(self, stage: str, effects: Effects) -> None:
        """Note the effects of a batch, or add to them what is due."""
        due = self.owes(stage)
        rows, values = self._rows.pop(stage, {}), self._values.pop(stage, {})
        if not due and self._clock.monotonic() >= self._until:
            return
        new = {(name, row["id"]): row for name, of_name in effects.rows.items() for row in of_name}
        sent = {(each.tenant, each.topic, each.key): each for each in effects.outgoing if each.topic in COMPACTED}
        if not due:
            self._rows[stage], self._values[stage] = rows | new, values | sent
            return
        for (name, id), row in rows.items():
            if (name, id) not in new:
                effects.rows.setdefault(name, []).append(row)
        effects.outgoing[:0] = [value for key, value in values.items() if key not in sent]
