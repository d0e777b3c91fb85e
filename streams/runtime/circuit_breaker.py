"""Stop a stream that is refused as a whole, instead of draining it into the dead letters.

One bad record is a dead letter. When *everything* is bad, the fault is not in the records: a producer was deployed with
another schema, or this worker with a bug. Then the log is the safe place and the dead letters are not. So nothing more
of the topic is processed or committed, and the same again after each start until the cause is removed. Other tenants of
the worker go on; where no tenant is left, it ends with an error. The rows that a stage makes of a topic are a stream
of their own, `TOPIC/COLLECTION`: where the store refuses one after the other, the topic stops as well.

The breaker trips where both hold, for one topic as this worker reads it:

- a run: the last `run_records` records in a row were lost, on any partitions. A record is lost if no event of it could
  be used; one good event anywhere on the topic ends the run.
- a ratio: of the last `WINDOW_RUNS * run_records` records (fewer after a start) more than `ratio` were lost.

Either alone could be exploited. By the ratio alone, an agent that writes more garbage than the others write events
would stop their pipeline, though every good event is processed. By the run alone, one burst of garbage in a pause of
the others would. Counting records and not events keeps an array of a million bad events at the weight of one. A client
that writes many times as much as all agents of its tenant together, for long, can still stop its own tenant. That is a
flood, which the broker's quotas are for; nothing is lost by stopping.

A handful of bad records never trips it: `run_records` is also the smallest sample. The counts live in the process, so a
start counts anew. But while a run is suspect, `streams.runtime.delivery` holds its commit back, so that the next start
finds the run in the log and stops at the same place.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleetlore.errors import BreakerTripped
from streams.runtime.dead_letters import is_lost
from streams.stage.base import DeadLetter, Record, TopicPartition

# How far the ratio looks back, in runs.
WINDOW_RUNS = 10
# A run of this length is suspect; where no good record was seen on the stream since the start, its first record is.
SUSPECT_RECORDS = 10
# These were good when they came. What their session was, or is missing, says nothing about the stream's schema.
NOT_LOST = frozenset({"sequence_gap", "missing_start", "after_end", "foreign_agent", "reused_session"})


@dataclass(slots=True)
class _Stream:
    recent: deque[bool]  # whether each of the last records was lost
    run: int = 0
    seen_good: bool = False
    reasons: Counter[str] = field(default_factory=Counter)
    starts: dict[TopicPartition, int] = field(default_factory=dict)


class Breaker:
    """Counts lost records by stream: a topic, or a collection of the store.

    Args:
        ratio: of the last records, above which a run trips it; in 0..1.
        run_records: lost records in a row that trip it.
    """

    def __init__(self, ratio: float = 0.5, run_records: int = 100) -> None:
        self._ratio = ratio
        self._run_records = run_records
        self._streams: dict[str, _Stream] = {}

    def weigh(self, batch: Sequence[Record], dead_letters: Sequence[DeadLetter]) -> dict[str, BreakerTripped]:
        """Count each record of a batch as good or lost; return why, by topic, where it is one lost record too many."""
        bad: dict[tuple[TopicPartition, int], list[DeadLetter]] = {}
        for letter in dead_letters:
            if letter.reason not in NOT_LOST:
                bad.setdefault((letter.record.tp, letter.record.offset), []).append(letter)
        if not bad:
            for name, records in Counter([record.topic for record in batch]).items():
                self.good(name, records)
            return {}
        tripped: dict[str, BreakerTripped] = {}
        for record in batch:
            mine = bad.get((record.tp, record.offset))
            if record.topic in tripped:
                continue
            if mine and is_lost(record, mine):
                try:
                    self.lost(record.topic, mine[0].reason, record.tp, record.offset)
                except BreakerTripped as error:
                    tripped[record.topic] = error
            else:
                self.good(record.topic)
        return tripped

    def good(self, name: str, records: int = 1) -> None:
        """Count records of which at least one event could be used."""
        stream = self._stream(name)
        stream.recent.extend([False] * min(records, WINDOW_RUNS * self._run_records))
        stream.seen_good = True
        if stream.run:
            stream.run = 0
            stream.reasons.clear()
            stream.starts.clear()

    def lost(self, name: str, reason: str, tp: TopicPartition | None = None, offset: int = 0) -> None:
        """Count a record of which nothing could be used.

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
        """Return how many records in a row were lost, up to now."""
        return self._stream(name).run

    def suspect(self, name: str) -> Mapping[TopicPartition, int]:
        """Return the first offset of the run on each partition, if it is long enough to hold its commit back."""
        stream = self._stream(name)
        return stream.starts if stream.run >= SUSPECT_RECORDS or not stream.seen_good else {}

    def forget(self) -> None:
        """Drop all counts: partitions were assigned anew, and uncommitted records are read again."""
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
            + f"), and {sum(stream.recent)} of the last {len(stream.recent)}. The worker stops there without "
            "committing the batch, and will stop here again. See the reasons with `fleetlore dead-letters list`; then "
            "correct what was deployed, the producer or this worker. To send these records to the dead letters, "
            f"raise FLEETLORE_BREAKER_RUN_RECORDS (now {self._run_records}) until the worker is past them"
        )
