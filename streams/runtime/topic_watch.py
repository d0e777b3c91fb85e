"""Detect topics that were grown or made anew, before or during a worker's run, which can mend neither.

More partitions move keys, and an automatically created topic is not compacted. Each commit records the topic's
partition count for the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple

from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable, TopicsChanged
from sinks.topics import TopicAdmin

__all__ = ["refuse_grown", "watch_topics"]

log = logging.getLogger(__name__)

WATCH_SECONDS = 30.0
_POLICY = "cleanup.policy"


class Shape(NamedTuple):
    partitions: int
    policy: str | None  # None if the broker does not return it

    def __str__(self) -> str:
        return f"{self.partitions} partitions" + (f", {_POLICY}={self.policy}" if self.policy else "")


async def refuse_grown(settings: Settings) -> None:
    """Raise TopicsChanged if a keyed topic has grown since the last commit: its states would have two writers."""
    async with TopicAdmin(settings).connected() as admin:
        grown = await admin.grown()
    for name, (before, now) in sorted(grown.items()):
        raise TopicsChanged(
            f"topic {name} had {before} partitions when the group {settings.group} last committed and has {now} now: "
            "keys have moved, and one pattern would have two writers. Stop all agents and workers; `fleetlore topics "
            "apply --grow-keyed` then takes the new number for good. Sessions that were open are split"
        )


async def watch_topics(settings: Settings, seconds: float = WATCH_SECONDS) -> None:
    before: Mapping[str, Shape] | None = None
    while True:
        try:
            now = await _shapes(settings)
        except BrokerUnavailable as error:  # the delivery and the client report this too
            log.info("topics could not be compared: %s", error)
        else:
            if before is not None and now != before:
                raise TopicsChanged(describe(before, now))
            before = now
        await asyncio.sleep(seconds)


def describe(before: Mapping[str, Shape], now: Mapping[str, Shape]) -> str:
    name = min(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return (
        f"topic {name} had {before.get(name, 'no partition')} and has {now.get(name, 'no partition')} now; "
        "the worker ends and begins anew. `fleetlore topics apply --dry-run` says how topics should be"
    )


async def _shapes(settings: Settings) -> dict[str, Shape]:
    async with TopicAdmin(settings).connected() as admin:
        found = await admin.read()
    return {name: Shape(each.partitions, (each.configs or {}).get(_POLICY)) for name, each in found.items()}
