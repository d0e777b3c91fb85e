"""Changes that the stage `items` buffers are neither lost nor left out of later ones."""

from typing import Any

import pytest
from msgspec.structs import replace

from fleetlore.config import Settings
from fleetlore.testing import FakeClock
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.topics import topic
from models.memory.item_state import ItemState
from sinks.metrics import Metrics
from streams.offline.memory_pipeline import MemoryStore
from streams.stage.base import Effects, Record, TopicPartition
from streams.stages.s4_items import READ_AGAIN_SECONDS, ItemsStage
from tests.candidates import candidate

HERE = TopicPartition(topic("acme", "candidates"), 0)


class Empty:
    """A store to which no write has come through yet."""

    async def resolve(self, collection: str) -> str:
        return collection

    async def get(self, *_: object) -> dict[str, dict[str, Any]]:
        return {}


def record(offset: int, session: str) -> Record:
    value = candidate(session, tenant="acme").to_json()
    return Record(HERE.topic, HERE.partition, offset, None, value, {})


def sessions(effects: Effects) -> int:
    """Behind the item whose row is written."""
    [row] = effects.rows["items"]
    return len(ItemState.from_json(row["state"].encode()).contributors.kept)


class Uncached(ItemsStage):
    """It knows only the states that wait or are being written."""

    most_bytes = 0


async def test_what_is_being_written_is_built_on_and_not_committed() -> None:
    clock = FakeClock()
    stage = Uncached(Empty(), clock, Metrics("worker"))
    assert not (await stage.process([record(0, "s0")])).rows, "it waits for more"
    clock.advance(stage.write_seconds)
    first = await stage.process([record(1, "s1")])
    assert sessions(first) == 2
    await stage.process([record(2, "s2")])
    assert stage.committable(HERE, 3) == 0
    assert first.acknowledged is not None
    first.acknowledged()
    assert stage.committable(HERE, 3) == 2
    assert stage.holds
    last = await stage.process([])
    assert sessions(last) == 3 and last.acknowledged is not None
    last.acknowledged()
    assert stage.committable(HERE, 3) == 3
    assert not stage.holds


@pytest.mark.parametrize("later", [0.0, READ_AGAIN_SECONDS])
async def test_what_a_former_owner_published_and_no_row_says_is_withdrawn(later: float) -> None:
    """It was killed between the batch that made an item and the one that took it back; now both come at once."""
    clock = FakeClock()
    stage = ItemsStage(MemoryStore(), clock, Metrics("worker"))
    clock.advance(later)
    taught = candidate("s", item_id="item1")
    withdrawn = replace(taught, side="withdrawn", revision=(2, 0.0))
    value = b"[" + taught.to_json() + b"," + withdrawn.to_json() + b"]"
    effects = await stage.process([Record(HERE.topic, HERE.partition, 0, None, value, {})])
    if not effects.rows:
        effects = await stage.process([])
    assert [(each.key, each.value) for each in effects.outgoing] == ([("item1", None)] if not later else [])


@pytest.mark.parametrize(
    ("review", "danger", "proposed"),
    [
        ("off", True, False),
        ("risky", True, True),
        ("risky", False, False),
        ("all", False, True),
        ("off,acme=all", False, True),
        ("all,acme=off", True, False),
        ("all,other=off", False, True),
    ],
)
async def test_a_new_lesson_is_proposed_where_the_tenant_s_review_says_so(
    review: str, danger: bool, proposed: bool
) -> None:
    settings = Settings(review=tuple(review.split(",")))
    stage = ItemsStage(MemoryStore(), FakeClock(), Metrics("worker"), review_of=settings.review_of)
    values = [candidate(f"s{n}", tenant="acme", agent=f"a{n}", danger=danger, now=("b",)) for n in range(4)]
    value = b"[" + b",".join(each.to_json() for each in values) + b"]"
    effects = await stage.process([Record(HERE.topic, HERE.partition, 0, None, value, {})])
    outgoing = [*effects.outgoing, *(await stage.process([])).outgoing]
    [item] = [MemoryItem.from_json(each.value) for each in outgoing if each.value is not None]
    assert item.danger is danger and item.proposed is proposed
