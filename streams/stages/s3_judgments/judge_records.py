"""The records of the judges (`models.judge.record`), in rows beside the judgments.

Each partition of the trajectories has its own, written by its owner alone; who reads them merges them. There are few, so they
are kept in memory once they were asked for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec.structs import replace

from fleetlore.wire.trajectory import Trajectory, Verdict
from models.judge.record import JudgeRecord, cases_of
from sinks.metrics import Metrics
from streams.stage.base import Store

LABEL = "judge"

# Tools name the families, so a client that makes up names makes up records: an end to those that are remembered.
REMEMBERED_RECORDS = 10_000


class RecordKey(NamedTuple):
    """Which record: of a tenant's partition, a version of a judge and a family of tools."""

    tenant: str
    partition: int
    version: str
    family: str

    @property
    def row(self) -> str:
        """Its row. A session's row begins with the tenant and a slash, and no tenant's name holds a bar."""
        return "|".join((self.tenant, str(self.partition), self.version, self.family))


class JudgeRecords:
    """The records of the partitions that a worker owns."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._records: OrderedDict[RecordKey, JudgeRecord] = OrderedDict()
        self._changed: dict[RecordKey, JudgeRecord] = {}
        self._collection = ""

    async def load(self, collection: str, keys: Iterable[tuple[RecordKey, str]]) -> None:
        """Have the records of these (key, source of its judge) in memory.

        Args:
            collection: what `judgments` stands for in this batch.

        Raises:
            StoreUnavailable: nothing has changed then.
        """
        if collection != self._collection:
            # A backfill has taken the name over: what was read before is of another one.
            self.forget()
            self._collection = collection
        wanted = dict(keys)
        unknown = {key.row: key for key in wanted if key not in self._records}
        rows = await self._store.get("judgments", list(unknown), "state") if unknown else {}
        for row, key in unknown.items():
            known = rows.get(row)
            self._records[key] = (
                JudgeRecord.from_json(known["state"]) if known else JudgeRecord(wanted[key], key.version, key.family)
            )
        for key in wanted:
            self._records.move_to_end(key)
        while len(self._records) > max(REMEMBERED_RECORDS, len(wanted)):
            self._records.popitem(last=False)

    def note(
        self,
        place: tuple[str, int, str],
        trajectory: Trajectory,
        votes: Iterable[Verdict],
        before: Iterable[Verdict],
    ) -> None:
        """Work in what a session says of its judges.

        Args:
            place: tenant, partition and family of the session.
            votes, before: what is said of it now, and was said before it was judged again.
        """
        tenant, partition, family = place
        for vote, case in cases_of(trajectory, tuple(votes), tuple(before)):
            key = RecordKey(tenant, partition, vote.version, family)
            record = self._records[key]
            if record.add(trajectory.id, case):
                self._changed[key] = record
                if case.truth:
                    self._metrics.judge_cases(
                        vote.source, "agreed" if case.said == case.truth else "contradicted"
                    ).inc()

    def take_rows(self) -> list[dict[str, Any]]:
        """The rows of those that have changed since this was last called."""
        changed, self._changed = self._changed, {}
        return [
            {
                "id": key.row,
                "tenant": key.tenant,
                "label": LABEL,
                "source": record.source,
                "body": "",
                "text": "",
                "state": record.to_json().decode(),
            }
            for key, record in changed.items()
        ]

    def heard(self, place: tuple[str, int, str], votes: Iterable[Verdict]) -> tuple[Verdict, ...]:
        """The votes that count: without those of judges that were contradicted too often, and a model's only as sure as its
        record is. The environment's own word is always heard.
        """
        tenant, partition, family = place
        heard = []
        for vote in votes:
            if vote.source == "reward":
                heard.append(vote)
                continue
            record = self._records[RecordKey(tenant, partition, vote.version, family)]
            precision = record.precision(vote.label) if vote.source == "llm" else None
            if vote.label in record.silenced or (precision is not None and precision <= 0.5):
                self._metrics.judge_silenced(vote.source).inc()
            elif precision is None:
                heard.append(vote)
            else:
                probability = precision if vote.label == "success" else 1 - precision
                heard.append(replace(vote, probability=probability))
        return tuple(heard)

    def forget(self) -> None:
        self._records.clear()
        self._changed.clear()
