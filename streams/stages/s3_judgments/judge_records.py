"""Count how often each judge was right (`models.judge.record`), in rows beside the judgments.

Each partition of the trajectories has its own records, written by its owner alone; a reader merges them. There are few,
so they stay in memory once they were read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from msgspec.structs import replace

from fleetlore.wire.trajectory import Trajectory, Verdict
from models.judge.record import JudgeRecord, cases_of
from sinks.metrics import Metrics
from streams.stage.base import Store
from streams.stage.bounded_cache import BoundedCache

__all__ = ["LABEL"]

LABEL = "judge"

# Tool names make the families, so a client that invents names invents records: this bounds those in memory, in bytes.
_MOST_BYTES = 64 * 2**20
# Of a record beside its cases, and of a case: estimates from above.
RECORD_BYTES, CASE_BYTES = 1_000, 480


class RecordKey(NamedTuple):
    """The key of a record: a tenant's partition, a version of a judge and a family of tools."""

    tenant: str
    partition: int
    version: str
    family: str

    @property
    def row(self) -> str:
        """Id of its row. A session's row begins with the tenant and a slash, and no tenant's name holds a bar."""
        return "|".join((self.tenant, str(self.partition), self.version, self.family))


class JudgeRecords:
    """The records of the partitions that a worker owns."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._records: BoundedCache[RecordKey, JudgeRecord] = BoundedCache(_weigh, _MOST_BYTES)
        self._used: dict[RecordKey, JudgeRecord] = {}  # those of the batch
        self._changed: dict[RecordKey, JudgeRecord] = {}
        self._collection = ""

    async def load(self, collection: str, keys: Iterable[tuple[RecordKey, str]]) -> None:
        """Load the records of these (key, source of its judge) into memory.

        Args:
            collection: what `judgments` stands for in this batch.

        Raises:
            StoreUnavailable: nothing has changed then.
        """
        if collection != self._collection:
            # A backfill has taken the name over: the records in memory are of another collection.
            self.forget()
            self._collection = collection
        wanted = dict(keys)
        self._records.trim()
        self._used = {key: record for key in wanted if (record := self._records.get(key)) is not None}
        unknown = {key.row: key for key in wanted if key not in self._used}
        rows = await self._store.get("judgments", list(unknown), "state") if unknown else {}
        for row, key in unknown.items():
            known = rows.get(row)
            self._used[key] = (
                JudgeRecord.from_json(known["state"]) if known else JudgeRecord(wanted[key], key.version, key.family)
            )
        for key, record in self._used.items():
            self._records.put(key, record)

    async def discard(self, collection: str, tenant: str, partition: int, sessions: Collection[int]) -> None:
        """Take sessions out of all records of a tenant's partition.

        Raises:
            StoreUnavailable: nothing has changed then.
        """
        rows = {row["id"]: row["state"] async for row in self._store.rows("judgments", tenant, "state", label=LABEL)}
        stored = [JudgeRecord.from_json(state) for state in rows.values()]
        found = [(RecordKey(tenant, partition, each.version, each.family), each.source) for each in stored]
        await self.load(collection, [(key, source) for key, source in found if key.row in rows])
        for key, record in self._records.items():
            if (key.tenant, key.partition) == (tenant, partition) and record.discard(sessions):
                self._changed[key] = record

    def note(
        self,
        place: tuple[str, int, str],
        trajectory: Trajectory,
        votes: Iterable[Verdict],
        before: Iterable[Verdict],
    ) -> None:
        """Add a session's evidence on its judges.

        Args:
            place: tenant, partition and family of the session.
            votes, before: the votes on it now, and before it was judged again.
        """
        tenant, partition, family = place
        for vote, case in cases_of(trajectory, tuple(votes), tuple(before)):
            key = RecordKey(tenant, partition, vote.version, family)
            record = self._used[key]
            if record.add(trajectory.id, case):
                self._changed[key] = record
                if case.truth:
                    self._metrics.judge_cases(
                        vote.source, "agreed" if case.said == case.truth else "contradicted"
                    ).inc()

    def take_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the records that have changed since the last call."""
        changed, self._changed = self._changed, {}
        return [
            {
                "id": key.row,
                "tenant": key.tenant,
                "label": LABEL,
                "source": record.source,
                "body": "",
                "state": record.to_json().decode(),
            }
            for key, record in changed.items()
        ]

    def counted(self, place: tuple[str, int, str], votes: Iterable[Verdict]) -> tuple[Verdict, ...]:
        """Return the votes that count.

        Those of a judge that was contradicted too often are left out. A language model's are as sure as its record. The
        environment's own always count.
        """
        tenant, partition, family = place
        counted = []
        for vote in votes:
            if vote.source == "reward":
                counted.append(vote)
                continue
            record = self._used[RecordKey(tenant, partition, vote.version, family)]
            precision = record.precision(vote.label) if vote.source == "llm" else None
            if vote.label in record.silenced or (precision is not None and precision <= 0.5):
                self._metrics.judge_silenced(vote.source).inc()
            elif precision is None:
                counted.append(vote)
            else:
                counted.append(replace(vote, probability=precision if vote.label == "success" else 1 - precision))
        return tuple(counted)

    def forget(self) -> None:
        self._records.clear()
        self._used.clear()
        self._changed.clear()


def _weigh(record: JudgeRecord) -> int:
    return RECORD_BYTES + CASE_BYTES * len(record.cases)
