"""A worker ends where its topics are no longer what it began with."""

from __future__ import annotations

import asyncio

import pytest

from fleetlore.config import Settings
from fleetlore.errors import TopicsChanged
from sinks.topics import ensure_topics
from streams.embedded.broker import EmbeddedBroker
from streams.runtime.topic_watch import Shape, describe, watch_topics


def test_what_changed_is_said_by_name_with_what_to_do() -> None:
    before = {"a": Shape(4, "compact"), "b": Shape(4, "delete"), "c": Shape(2, None)}
    assert "topic b had 4 partitions, cleanup.policy=delete and has 8 partitions" in describe(
        before, before | {"b": Shape(8, "delete"), "c": Shape(3, None)}
    )
    assert "topic c had 2 partitions and has no partition now" in describe(before, {"a": before["a"], "b": before["b"]})
    assert "topics apply" in describe(before, {})


@pytest.mark.tansu
async def test_topics_that_a_broker_makes_anew_are_noticed_and_its_absence_is_not(
    own_broker: EmbeddedBroker, tenant: str
) -> None:
    """The embedded broker forgets all; clients that ask for a topic have it made again, with four partitions."""
    own_broker.start()
    settings = Settings(broker=own_broker.address, tenants=(tenant,), partitions=2)
    await ensure_topics(settings)
    watching = asyncio.create_task(watch_topics(settings, 0.05))
    await asyncio.sleep(0.5)
    own_broker.kill()
    await asyncio.sleep(0.5)
    assert not watching.done()
    own_broker.start()
    await ensure_topics(settings.with_(partitions=4))
    with pytest.raises(TopicsChanged, match=tenant):
        await asyncio.wait_for(watching, 20)
