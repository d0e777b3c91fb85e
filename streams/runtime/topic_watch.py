"""Notice that topics were grown or made anew, under a running worker or while none ran.

With more partitions a key goes elsewhere than before, and the client would not read the new ones for minutes; a topic
that a broker made anew by itself is not compacted. Neither can be mended by a worker that goes on with what it knows.
Each commit says how many partitions its topic had, so the next start knows too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple

from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable, TopicsChanged
from sinks.topics import TopicAdmin

log = logging.getLogger(__name__)

WATCH_SECONDS = 30.0
_POLICY = "cleanup.policy"


class Shape(NamedTuple):
    """What a worker relies on in a topic."""

    partitions: int
    policy: str | None  # None: the broker does not return it

    def __str__(self) -> str:
        return f"{self.partitions} partitions" + (f", {_POLICY}={self.policy}" if self.policy else "")


async def refuse_grown(settings: Settings) -> None:
    """Raise TopicsChanged where a keyed topic has other partitions than when the group last committed there.

    The states of its keys would have two writers for as long as an old partition holds records of them.
    """
    async with TopicAdmin(settings).connected() as admin:
        grown = await admin.grown()
    for name, (before, now) in sorted(grown.items()):
        raise TopicsChanged(
            f"topic {name} had {before} partitions when the group {settings.group} last committed and has {now} now: "
            "keys have moved, and one pattern would have two writers. Stop all agents and workers; `fleetlore topics "
            "apply --grow-keyed` then takes the new number for good. Sessions that were open are split"
        )


async def watch_topics(settings: Settings, seconds: float = WATCH_SECONDS) -> None:
    """Compare the topics with what they were at the first look, until cancelled.

    Raises:
        TopicsChanged: at least one is gone, or has other partitions or another cleanup policy.
    """
    before: Mapping[str, Shape] | None = None
    while True:
        try:
            now = await _shapes(settings)
        except BrokerUnavailable as error:  # the delivery and the client notice that too
            log.info("topics not looked at: %s", error)
        else:
            if before is not None and now != before:
                raise TopicsChanged(describe(before, now))
            before = now
        await asyncio.sleep(seconds)


def describe(before: Mapping[str, Shape], now: Mapping[str, Shape]) -> str:
    """Say which topic changed first, by name, and what to do."""
    name = min(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return (
        f"topic {name} had {before.get(name, 'no partition')} and has {now.get(name, 'no partition')} now; "
        "the worker ends and begins anew. `fleetlore topics apply --dry-run` says how topics should be"
    )


async def _shapes(settings: Settings) -> dict[str, Shape]:
    async with TopicAdmin(settings).connected() as admin:
        found = await admin.read()
    return {name: Shape(each.partitions, (each.configs or {}).get(_POLICY)) for name, each in found.items()}
