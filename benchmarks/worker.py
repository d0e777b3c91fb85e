"""Run our worker on a real broker without Milvus, beside its peers.

`python -m benchmarks.worker BROKER EVENTS STAGES [PORT]`

The worker is the real one: Faust, delivery, producer, commits. STAGES is `all`, or the names of some with commas. When
each of these stages has processed all its records, the worker ends with one JSON line, like the peers. PORT is that of
its metrics.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from benchmarks.peers.stopwatch import Stopwatch
from benchmarks.pipeline import EmptyStore
from benchmarks.traffic import PARTITIONS, TENANT
from fleetlore.config import Settings
from sinks.milvus import MilvusStore
from streams.embedded.stack import SESSION_TIMEOUT_SECONDS
from streams.runtime import app
from streams.runtime.worker import run_worker
from streams.stage.base import Effects, Record, Stage
from streams.stages.pipeline import pipeline

GROUP = "fleetlore"


class Watch:
    """Tells when the stages have nothing more to do."""

    def __init__(self, events: int) -> None:
        self._events = events
        self._stopwatch = Stopwatch(events)
        self.begin = self._stopwatch.begin
        self._reads: set[str] = set()
        self._sent: Counter[str] = Counter({"events": events})
        self._done: Counter[str] = Counter()

    def over(self, stage: Stage) -> Watched:
        self._reads.add(stage.reads)
        return Watched(stage, self)

    def note(self, stage: Stage, effects: Effects) -> None:
        self._done[stage.reads] += effects.processed + len(effects.dead_letters)
        for outgoing in effects.outgoing:
            self._sent[outgoing.topic] += 1
        if all(self._done[name] >= self._sent[name] for name in self._reads):
            self._stopwatch.count(self._events)


class Watched:
    """A stage that reports what it has done; in all else the stage itself."""

    def __init__(self, stage: Stage, watch: Watch) -> None:
        self._stage = stage
        self._watch = watch

    async def process(self, batch: Sequence[Record]) -> Effects:
        self._watch.begin()
        effects = await self._stage.process(batch)
        self._watch.note(self._stage, effects)
        return effects

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)


def main(broker: str, events: int, stages: str, port: int = 0) -> None:
    watch = Watch(events)
    chosen = None if stages == "all" else stages.split(",")

    def watched(*arguments: Any, **named: Any) -> tuple[Any, ...]:
        built = pipeline(*arguments, **named)
        return tuple(watch.over(stage) for stage in built if chosen is None or stage.name in chosen)

    # The worker is the real one but for these two.
    patch.object(app, "pipeline", watched).start()
    patch.object(MilvusStore, "from_settings", lambda *_, **__: EmptyStore()).start()
    settings = Settings.from_env(
        broker=broker,
        tenants=(TENANT,),
        partitions=PARTITIONS,
        group=GROUP,
        session_timeout_seconds=SESSION_TIMEOUT_SECONDS,
        metrics_port=port,
    )
    run_worker(settings)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], *(int(port) for port in sys.argv[4:]))
