"""The breaker: a stream that is refused wholesale stops the worker, instead of draining into the dead letters.

One bad record is a dead letter. When *everything* is bad, the fault is not in the records: a producer was deployed with
another schema, or this worker with a bug. Then the log is the safe place and the dead letters are not, so the worker ends
without committing the batch, loudly, and does so again when it is started before somebody has looked.

It trips where both hold, for one topic as this worker reads it:

- a run: the last `run_records` records in a row were lost, on whatever partitions. A record is lost if not one event of it
  could be used; one good event anywhere on the topic ends the run.
- a ratio: of the last `WINDOW_RUNS * run_records` records (fewer after a start) more than `ratio` were lost.

Either alone would be a weapon. By a ratio alone, an agent that writes a little more garbage than the others write events
would stop their pipeline, though every good event is still being processed. By a run alone, one burst of garbage would,
in a pause of the others. Counting records and not events keeps an array of a million bad events at the weight of one.
What is left: who may write to a tenant's topic and writes many times as much as all its agents together, for long, stops
the workers of that tenant. That is a flood, which the broker's quotas are for; nothing is lost by stopping, and a tenant
that is not trusted gets workers of its own (`FLEETLORE_TENANTS`).

A single bad record or a handful never trip it: `run_records` is also the smallest sample. The counts live in the process,
so a start counts anew. But while a run is suspect, `streams.runtime.delivery` puts off the commit of its records, so that whoever
starts next finds the run in the log and stops at the same place, however often it is started.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetlore.errors import BreakerTripped
from streams.stage.base import TopicPartition

# How far the ratio looks back, in runs.
WINDOW_RUNS = 10
# A run is suspect from here on; from its first record where nothing good was seen on the stream since the start.
SUSPECT_RECORDS = 10


@dataclass(slots=True)
class _Stream:
    recent: deque[bool]  # whether each of the last records was lost
    run: int = 0
    seen_good: bool = False
    reasons: Counter[str] = field(default_factory=Counter)
    starts: dict[TopicPartition, int] = field(default_factory=dict)


class Breaker:
    """Counts what was lost, by stream: a topic, or a collection of the store.

    Args:
        ratio: of the last records, above which a run trips it; in 0..1.
        run_records: lost records in a row that trip it.
    """

    def __init__(self, ratio: float = 0.5, run_records: int = 100) -> None:
        self._ratio = ratio
        self._run_records = run_records
        self._streams: dict[str, _Stream] = {}

    def good(self, name: str, records: int = 1) -> None:
        """Records of which at least one event could be used."""
        stream = self._stream(name)
        stream.recent.extend([False] * min(records, WINDOW_RUNS * self._run_records))
        stream.seen_good = True
        if stream.run:
            stream.run = 0
            stream.reasons.clear()
            stream.starts.clear()

    def lost(self, name: str, reason: str, tp: TopicPartition | None = None, offset: int = 0) -> None:
        """One record, of which nothing could be used.

        Raises:
            BreakerTripped: it is one too many.
        """
        stream = self._stream(name)
        stream.recent.append(True)
        stream.run += 1
        stream.reasons[reason] += 1
        if tp is not None:
            stream.starts.setdefault(tp, offset)
        if stream.run >= self._run_records and sum(stream.recent) > self._ratio * len(stream.recent):
            raise BreakerTripped(self._report(name, stream))

    def run(self, name: str) -> int:
        """How many records in a row were lost, up to now."""
        return self._stream(name).run

    def suspect(self, name: str) -> Mapping[TopicPartition, int]:
        """Offset of the first record of the run on each partition, if it is long enough to put off its commit."""
        stream = self._stream(name)
        return stream.starts if stream.run >= SUSPECT_RECORDS or not stream.seen_good else {}

    def forget(self) -> None:
        """Partitions were handed out anew: what was not committed is read again and must not be counted twice."""
        self._streams.clear()

    def _stream(self, name: str) -> _Stream:
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = _Stream(deque(maxlen=WINDOW_RUNS * self._run_records))
        return stream

    def _report(self, name: str, stream: _Stream) -> str:
        reasons = ", ".join(f"{reason} {count}" for reason, count in stream.reasons.most_common())
        places = ", ".join(f"{tp.partition} from {offset}" for tp, offset in sorted(stream.starts.items()))
        return (
            f"{name}: the last {stream.run} records were refused, every one of them ({reasons}"
            + (f"; partition {places}" if places else "")
            + f"), and {sum(stream.recent)} of the last {len(stream.recent)}. The worker stops without committing the "
            "batch, and will stop here again. Look at the reasons with `fleetlore dead-letters list`; then correct what "
            "was deployed, the producer or this worker. To have these records go to the dead letters all the same, raise "
            f"FLEETLORE_BREAKER_RUN_RECORDS (now {self._run_records}) until the worker is past them"
        )
