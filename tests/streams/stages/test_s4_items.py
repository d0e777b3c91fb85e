"""What the stage `items` holds back and writes behind: nothing of it may be lost, and nothing be built on less than it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fleetlore.testing.clock import FakeClock
from fleetlore.wire.topics import topic
from models.memory.item_state import ItemState
from sinks.metrics import Metrics
from streams.stage import state_cache as merging
from streams.stage.base import Effects, Record, TopicPartition
from streams.stage.cooperative import PIECE
from streams.stages.s4_items import WRITE_SECONDS, ItemsStage
from tests.candidates import candidate

HERE = TopicPartition(topic("acme", "candidates"), 0)


class Empty:
    """A store to which no write has come through yet."""

    async def resolve(self, collection: str) -> str:
        return collection

    async def get(self, *_: object) -> dict[str, dict[str, Any]]:
        return {}

    async def rows(self, *_: object, **__: object) -> AsyncIterator[dict[str, Any]]:
        none: tuple[dict[str, Any], ...] = ()
        for row in none:
            yield row


def record(offset: int, session: str) -> Record:
    value = candidate(session, tenant="acme").to_json()
    return Record(HERE.topic, HERE.partition, offset, None, value, {})


def sessions(effects: Effects) -> int:
    """Behind the item whose row is written."""
    [row] = effects.rows["items"]
    return len(ItemState.from_json(row["state"].encode()).contributors.kept)


async def test_what_is_being_written_is_built_on_and_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "REMEMBERED_STATES", 0)  # only what is held is known
    clock = FakeClock()
    stage = ItemsStage(Empty(), clock, Metrics("worker"))
    assert not (await stage.process([record(0, "s0")])).rows, "it waits for more"
    clock.advance(WRITE_SECONDS)
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


async def test_a_rebalance_between_two_pieces_of_a_write_does_no_harm() -> None:
    clock = FakeClock()
    stage = ItemsStage(Empty(), clock, Metrics("worker"))
    kinds = [candidate("s0", tenant="acme", item_id=f"item{number:028x}").to_json() for number in range(3 * PIECE)]
    clock.advance(WRITE_SECONDS)
    writing = asyncio.create_task(
        stage.process([Record(HERE.topic, HERE.partition, offset, None, kind, {}) for offset, kind in enumerate(kinds)])
    )
    while not stage.holds:
        await asyncio.sleep(0)
    stage.forget()
    assert len((await writing).rows["items"]) == 3 * PIECE
