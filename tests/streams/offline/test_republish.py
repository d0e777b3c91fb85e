"""Lore is published again beside workers that publish newer lore."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import pytest

from fleetlore.config import Settings
from streams.offline import republish
from streams.stage.base import Outgoing

PLACE = "acme", "patterns", "p"


class Late:
    """A store that a worker writes to after it has published."""

    reads = 0

    async def open_within(self, seconds: float) -> None:
        pass

    async def rows(self, collection: str, tenant: str, *fields: str) -> AsyncIterator[dict[str, str]]:
        self.reads += collection == "patterns"
        if collection == "patterns" and self.reads > 1:
            yield {"id": "acme/p", "body": "new"}


async def test_lore_that_a_worker_writes_meanwhile_stays_on_a_topic_with_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics = {PLACE: b"new"}

    class Producer:
        async def deliver(self, values: Sequence[Outgoing]) -> None:
            topics.update({(each.tenant, each.topic, each.key): each.value or b"" for each in values})

    async def on_topics(settings: Settings) -> dict[tuple[str, str, str], int]:
        return {PLACE: hash(b"new")}

    def context(of: Any) -> Any:
        def made(*_: object) -> AbstractAsyncContextManager[Any]:
            return nullcontext(of)

        return made

    monkeypatch.setattr(republish, "ADAPTERS", ())
    monkeypatch.setattr(republish, "_PASS_SECONDS", 0.0)
    monkeypatch.setattr(republish, "_on_topics", on_topics)
    monkeypatch.setattr(republish, "BatchProducer", context(Producer()))
    monkeypatch.setattr(republish.MilvusStore, "from_settings", context(Late()))
    await republish._restore_topics(Settings(tenants=("acme",)))
    assert topics == {PLACE: b"new"}
