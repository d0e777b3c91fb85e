"""Find the states that know an erased session, and ask their owners to forget it.

A state has one writer, its partition's owner. So nothing is changed here: a `Forget` goes to the owner on the topic of
the contributions, and behind it once more what other sessions contributed, for what takes the freed places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from models.judge.record import JudgeRecord
from models.memory.item_state import ItemState
from models.memory.pattern_state import PatternState
from streams.stage.base import Outgoing, Store
from streams.stage.erased import Forget
from streams.stages.s3_judgments.judge_records import LABEL

# Session id → hashes of its id and of those of its parts.
Sessions = Mapping[str, tuple[int, ...]]


@dataclass(slots=True)
class Touched:
    """What knows erased sessions: by id, the hashes of those.

    Attributes:
        cases: sessions that records of judges count.
        empty: ids of rows in which nothing is left.
    """

    patterns: dict[str, tuple[int, ...]] = field(default_factory=dict)
    items: dict[str, tuple[int, ...]] = field(default_factory=dict)
    cases: set[int] = field(default_factory=set)
    empty: dict[str, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.patterns or self.items or self.cases)


async def touched(store: Store, tenant: str, sessions: Iterable[int]) -> Touched:
    """Look through all states of a tenant.

    Raises:
        StoreUnavailable: Milvus does not answer.
    """
    wanted, found = frozenset(sessions), Touched()
    async for row in store.rows("patterns", tenant, "body", "state"):
        if not row["state"]:
            found.empty.setdefault("patterns", []).append(row["id"])
        elif known := wanted & PatternState.restore(row["body"], row["state"]).sessions:
            found.patterns[_id(row["id"])] = tuple(sorted(known))
    async for row in store.rows("items", tenant, "body", "state"):
        if row["state"]:
            state = ItemState.from_json(row["state"].encode())
            if known := wanted & state.sessions:
                found.items[_id(row["id"])] = tuple(sorted(known))
            elif not state.sessions:
                found.empty.setdefault("items", []).append(row["id"])
    async for row in store.rows("judgments", tenant, "state", label=LABEL):
        found.cases |= wanted & JudgeRecord.from_json(row["state"]).cases.kept.keys()
    return found


def forgets(tenant: str, found: Touched, sessions: Sessions) -> list[Outgoing]:
    """What goes to the owners."""
    values = [
        *(("observations", id, id, known) for id, known in found.patterns.items()),
        *(("candidates", id, id, known) for id, known in found.items.items()),
        # A session's judge records are those of its own partition.
        *(
            ("trajectories", session, "", hashes)
            for session, hashes in sessions.items()
            if not found.cases.isdisjoint(hashes)
        ),
    ]
    return [Outgoing(tenant, name, key, Forget(id, known).to_json()) for name, key, id, known in values]


def _id(row: str) -> str:
    return row.partition("/")[2]
