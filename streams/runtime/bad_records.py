"""Make the dead letters of bad records, and stop a topic of only bad records instead of draining it.

If all are bad, the fault lies in a schema or in this worker, so the records stay in the log. Other tenants go on. A
stage's rows are a separate stream, `TOPIC/COLLECTION`.

The breaker trips on a run of `run_records` records without a usable event that spans `RUN_SECONDS` of broker time and
has more than one sender: the signing principal or the named agent. Anonymous junk adds no sender, because a sender may
leave out its name. While a run may still trip, `streams.runtime.delivery` holds back its commit, so a restart finds it
again.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

import msgspec

from fleetlore.errors import BreakerTripped, InvalidEvent
from fleetlore.wire.dead_letter import RawRecord, dead_letter
from fleetlore.wire.decode import read_json
from fleetlore.wire.principals import ANYONE, SIGNED_BY, Principals, principal_of
from fleetlore.wire.topics import topic
from streams.stage.base import DeadLetter, Record, Stage, TopicPartition

__all__ = ["Breaker", "record_of", "records_of"]

# Broker time: a broken deployment lasts longer than a burst of junk or of retries.
RUN_SECONDS = 120.0
# A run of this length is suspect. Before the first good record of the stream, one lost record is enough.
SUSPECT_RECORDS = 10
# These reasons blame the record's session and not the schema, so the record is not lost.
NOT_LOST = frozenset({"missing_start", "after_end", "reused_session"})
_OF_AGENTS = (".events", ".feedback")
# The emitter's limit. A record with more becomes one dead letter, not half a million.
_MAX_PER_RECORD = 64


@dataclass(slots=True)
class _Run:
    records: int = 0
    first: float = inf
    last: float = -inf
    senders: set[str] = field(default_factory=set)
    reasons: Counter[str] = field(default_factory=Counter)
    starts: dict[TopicPartition, int] = field(default_factory=dict)


class Breaker:
    def __init__(self, run_records: int = 100) -> None:
        self._run_records = run_records
        self._runs: dict[str, _Run] = {}
        self._good: Counter[str] = Counter()

    def weigh(
        self, batch: Sequence[Record], dead_letters: Sequence[DeadLetter], principals: Principals | None = None
    ) -> dict[str, BreakerTripped]:
        bad: dict[tuple[TopicPartition, int], list[DeadLetter]] = {}
        for letter in dead_letters:
            if letter.reason not in NOT_LOST:
                bad.setdefault((letter.record.tp, letter.record.offset), []).append(letter)
        tripped: dict[str, BreakerTripped] = {}
        for record in batch:
            mine = bad.get((record.tp, record.offset))
            if record.topic in tripped:
                continue
            if mine and _is_lost(record, mine):
                try:
                    sender = sender_of(record, principals)
                    self.lost(record.topic, mine[0].reason, record.time, sender, record.tp, record.offset)
                except BreakerTripped as error:
                    tripped[record.topic] = error
            else:
                self.good(record.topic)
        return tripped

    def good(self, name: str) -> None:
        self._good[name] += 1
        self._runs.pop(name, None)

    def lost(
        self,
        name: str,
        reason: str,
        time: float = 0.0,
        sender: str = "",
        tp: TopicPartition | None = None,
        offset: int = 0,
    ) -> None:
        run = self._runs.setdefault(name, _Run())
        run.records += 1
        run.reasons[reason] += 1
        if time > 0:
            run.first, run.last = min(run.first, time), max(run.last, time)
        if sender and len(run.senders) < 2:
            run.senders.add(sender)
        if tp is not None:
            run.starts.setdefault(tp, offset)
        if run.records >= self._run_records and run.last - run.first >= RUN_SECONDS and len(run.senders) > 1:
            raise BreakerTripped(self._report(name, run))

    def run(self, name: str) -> int:
        run = self._runs.get(name)
        return 0 if run is None or len(run.senders) < 2 else run.records

    def suspect(self, name: str) -> Mapping[TopicPartition, int]:
        """Return a run's first offset on each partition, if its commit is to be held back.

        A run of one sender never trips the breaker and could grow without end.
        """
        run = self._runs.get(name)
        if run is None or len(run.senders) < 2:
            return {}
        return run.starts if run.records >= SUSPECT_RECORDS or not self._good[name] else {}

    def forget(self) -> None:
        self._runs.clear()
        self._good.clear()

    def _report(self, name: str, run: _Run) -> str:
        reasons = ", ".join(f"{reason} {count}" for reason, count in run.reasons.most_common())
        places = ", ".join(f"{tp.partition} from {offset}" for tp, offset in sorted(run.starts.items()))
        where = f"; partition {places}" if places else ""
        return (
            f"{name}: the last {run.records} records were refused, every one of them ({reasons}{where}), over "
            f"{run.last - run.first:.0f} s and from several senders; the {self._good[name]} before that this worker "
            "has read were good. It stops there without committing the batch, and will stop here again. See the "
            "reasons with `fleetlore dead-letters list`; then correct what was deployed, the producers or this "
            "worker. To send these records to the dead letters, raise FLEETLORE_BREAKER_RUN_RECORDS (now "
            f"{self._run_records}) until the worker is past them"
        )


def sender_of(record: Record, principals: Principals | None) -> str:
    """Return the sender of a lost record, or "". With `principals` only a signature counts."""
    if not record.topic.endswith(_OF_AGENTS):
        return f"{record.partition}@{record.offset}"
    value = record.value or b""
    if principals is not None:
        try:
            signed = principals.signed_by(record.headers, record.topic, value)
        except InvalidEvent:
            return ""
        if signed != ANYONE:
            return signed
    named: object = (record.headers.get("ce_agent") or b"").decode(errors="replace")
    try:
        event = read_json(value)
        event = event[0] if isinstance(event, list) and event else event
        named = event["agent"] if isinstance(event, dict) and "agent" in event else named
    except msgspec.DecodeError:
        pass
    return principal_of(named) if isinstance(named, str) else ""


def _is_lost(record: Record, dead_letters: Sequence[DeadLetter]) -> bool:
    value = record.value or b""
    if any(letter.value == value for letter in dead_letters):
        return True
    try:
        events = read_json(value)
    except msgspec.DecodeError:
        return True
    return not isinstance(events, list) or len(dead_letters) >= len(events)


def records_of(stage: Stage, dead_letters: Sequence[DeadLetter]) -> list[RawRecord]:
    by_record: dict[tuple[TopicPartition, int], list[DeadLetter]] = {}
    for letter in dead_letters:
        by_record.setdefault((letter.record.tp, letter.record.offset), []).append(letter)
    written: list[RawRecord] = []
    for each in by_record.values():
        if len(each) > _MAX_PER_RECORD:
            first = each[0]
            detail = f"{len(each)} bad events, of which the first: {first.detail}"
            each = [first._replace(value=first.record.value or b"", detail=detail)]
        written += [record_of(stage, letter) for letter in each]
    return written


def record_of(stage: Stage, letter: DeadLetter) -> RawRecord:
    to, headers = topic(letter.record.tenant, "dead-letters"), _headers_of(stage, letter)
    about = {"stage": stage.name, "reason": letter.reason, "detail": letter.detail}
    return dead_letter(letter.record, letter.value, headers, to=to, **about)


def _headers_of(stage: Stage, letter: DeadLetter) -> Mapping[str, bytes | None]:
    """Each part of a signed record is signed anew."""
    record, value = letter.record, letter.record.value or b""
    if letter.value == value:
        return record.headers
    headers = {name: content for name, content in record.headers.items() if name != SIGNED_BY}
    if stage.principals is not None and letter.value in value:
        with suppress(InvalidEvent):
            headers[SIGNED_BY] = stage.principals.signed_again(record.headers, record.topic, value, letter.value)
    return headers
