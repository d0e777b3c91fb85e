"""Do the mission's whole work with the least code: `python -m benchmarks.peers.mission FILE` (pickled records).

One loop and dictionaries. From fleetlore come only what a secret, a person's data, a kind of failure and the shape of
a call are, so that both tell the same things apart: its detectors, templates and fingerprints. Done is what the stages
promise agents: events once each, secrets masked, sessions put together, failures told at once and counted at three
levels by agent, health of tools by hour and of calls, circles, a verdict and a digest of each session, what got past a
failure, what did not, ways that solved a task, no end user's data in what is told, nothing told of distrusted agents,
and harmful or whole ways only of several.

It counts sets of sessions up to a bound, as the stages do, and writes rows as often as they do. What it cannot do: be
killed, corrected, erased from or shared by two workers; estimate beyond its bound; tell why a change helped; know a
place, or how the same change looks in another call.
"""

from __future__ import annotations

import gc
import pickle
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import orjson

from benchmarks.pipeline import BATCH_RECORDS, decode_once
from benchmarks.traffic import Sent
from fleetlore.fingerprint.fingerprint import argument_shape, arguments_text, pattern_id
from fleetlore.fingerprint.normal_form import normal_form
from fleetlore.redact.personal import personal_data
from fleetlore.redact.redact import redact, suspects
from fleetlore.wire import events as ev
from fleetlore.wire.trajectory import Step as ToldStep
from models.memory.quality import is_dangerous

# Sessions kept of a thing, agents that are named, examples of an item; events between two writes, as at 5,000 a second.
SESSIONS, AGENTS, EXAMPLES, WRITE_EVENTS = 256, 48, 3, 25_000
READ, KEPT, SHOWN, STEPS = 8_192, 2_000, 300, 192
DISTRUSTED: frozenset[str] = frozenset()
_PERSONAL_FIELD = re.compile(
    r'"[a-z_]*(?:mail|phone|name|user|customer|address|street|city|zip|birth|card|order|booking|passport)[a-z_]*"'
    r'\s*:\s*"([^"\\]{4,160})"',
    re.I,
)


class Data(msgspec.Struct, gc=False):
    tool: str | None = msgspec.field(default=None, name=ev.TOOL)
    arguments: Any = msgspec.field(default=None, name=ev.ARGUMENTS)
    result: Any = msgspec.field(default=None, name=ev.RESULT)
    error_type: str | None = msgspec.field(default=None, name=ev.ERROR_TYPE)
    error: str | None = msgspec.field(default=None, name=ev.ERROR_MESSAGE)
    goal: str | None = msgspec.field(default=None, name=ev.GOAL)
    task: str | None = msgspec.field(default=None, name=ev.TASK)
    outcome: str | None = msgspec.field(default=None, name=ev.OUTCOME)
    reward: float | None = msgspec.field(default=None, name=ev.REWARD)
    content: str | None = msgspec.field(default=None, name=ev.CONTENT)


class Event(msgspec.Struct, gc=False):
    type: str
    agent: str
    session: str
    sequence: int
    time: datetime
    data: Data


class Step(msgspec.Struct, array_like=True, gc=False):
    sequence: int
    tool: str
    arguments: str
    result: str
    pattern: str
    error: str


@dataclass(slots=True)
class Session:
    agent: str
    seen: set[int] = field(default_factory=set)
    steps: dict[int, Step] = field(default_factory=dict)
    last: list[tuple[str, str, str]] = field(default_factory=list)
    goal: str = ""
    task: str = ""
    end: int | None = None
    outcome: str | None = None
    reward: float | None = None


@dataclass(slots=True)
class Thing:
    """A tool, a kind of call or a pattern: calls and failures by session, hours of a tool."""

    said: tuple[str, ...]
    first: float = 0.0
    last: float = 0.0
    sessions: dict[str, list[Any]] = field(default_factory=dict)  # agent, calls, failures, how it ended
    hours: dict[int, list[int]] = field(default_factory=dict)


_read = msgspec.json.Decoder(list[Event]).decode
_encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=32_768)
def _call(tool: str, shape: str) -> tuple[str, str]:
    return pattern_id("tool", tool), pattern_id("call", tool, shape)


@lru_cache(maxsize=32_768)
def _failure(tool: str, shape: str, kind: str, message: str) -> tuple[tuple[str, str, str], str, bool]:
    error_class, template, passes = normal_form(kind, message)
    family, of_class = pattern_id("family", tool, error_class), pattern_id("class", tool, error_class, template)
    return (family, of_class, pattern_id("exact", tool, error_class, template, shape)), template, passes


class Mission:
    """All state of the script. `out`: what would be published, `rows`: what was written."""

    def __init__(self) -> None:
        self.open: dict[tuple[str, str], Session] = {}
        self.things: dict[str, Thing] = {}
        self.items: dict[str, dict[str, list[tuple[str, str, bytes]]]] = defaultdict(lambda: defaultdict(list))
        self.changed: set[str] = set()
        self.changed_items: set[str] = set()
        self.out: list[bytes] = []
        self.rows: list[dict[str, Any]] = []
        self.since = self.judged = 0

    def take(self, records: Sequence[Sent]) -> None:
        events = [event for record in records for event in _read(record.value)]
        self._clean(events)
        for event in events:
            self._add(event)
        self.since += len(events)
        if self.since >= WRITE_EVENTS:
            self.write()

    @staticmethod
    def _clean(events: list[Event]) -> None:
        texts: list[str] = []
        for event in events:
            data = event.data
            if data.tool is not None:
                data.arguments, data.result = arguments_text(data.arguments), arguments_text(data.result)
                texts += (data.arguments[:READ], data.result[:READ], data.error or "")
            else:
                texts += (data.content or "", data.goal or "", data.task or "")
        names = list({name for event in events for name in (event.agent, event.session, event.data.tool) if name})
        for place in suspects([*texts, *names]):
            if place < len(texts):
                data = events[place // 3].data
                fields = ("arguments", "result", "error") if data.tool is not None else ("content", "goal", "task")
                setattr(data, fields[place % 3], redact(texts[place]))

    def _add(self, event: Event) -> None:
        key = event.agent, event.session
        if (session := self.open.get(key)) is None:
            session = self.open[key] = Session(event.agent)
        if event.sequence in session.seen:
            return
        session.seen.add(event.sequence)
        data = event.data
        if data.tool is not None:
            self._count(session, event, data, data.tool)
        elif data.content is not None:
            session.steps[event.sequence] = Step(event.sequence, "", data.content[:KEPT], "", "", "")
        elif event.type.endswith("started.v1"):
            session.goal, session.task = data.goal or "", data.task or ""
        elif event.type.endswith("ended.v1"):
            session.end, session.outcome, session.reward = event.sequence, data.outcome, data.reward
        if session.end is not None and len(session.seen) > session.end:
            self._close(key, self.open.pop(key))

    def _count(self, session: Session, event: Event, data: Data, tool: str) -> None:
        when, failed, message = event.time.timestamp(), bool(data.error or data.error_type), (data.error or "")[:READ]
        shape = argument_shape(data.arguments)
        tool_id, call = _call(tool, shape)
        subjects: list[tuple[str, tuple[str, ...]]] = [(tool_id, (tool,)), (call, (tool, shape))]
        pattern = ""
        if failed:
            levels, template, passes = _failure(tool, shape, data.error_type or "", message)
            subjects += [(level, (tool, template, shape)) for level in levels]
            pattern = "" if passes else levels[1]
        step = Step(event.sequence, tool, data.arguments[:KEPT], data.result[:KEPT], pattern, message[:KEPT])
        session.steps[event.sequence] = step
        made = tool, data.arguments, step.error or step.result
        session.last = [*session.last[-5:], made]
        if session.last.count(made) > 2 and made[2]:
            subjects.append((pattern_id("loop", tool, shape), (tool, "the same call gives the same result")))
        for id, said in subjects:
            thing = self.things.get(id)
            if thing is None:
                thing = self.things[id] = Thing(said, when)
                if len(said) > 2 and event.agent not in DISTRUSTED:
                    self.out.append(_encode({"id": id, "said": said, "agents": [event.agent]}))
            thing.last = max(thing.last, when)
            counts = thing.sessions.get(event.session)
            if counts is None:
                if len(thing.sessions) >= SESSIONS:
                    continue
                counts = thing.sessions[event.session] = [event.agent, 0, 0, ""]
            counts[1] += 1
            counts[2] += failed
            if id == tool_id:
                hour = thing.hours.setdefault(int(when // 3600), [0, 0])
                hour[0] += 1
                hour[1] += failed
            self.changed.add(id)

    def _close(self, key: tuple[str, str], session: Session) -> None:
        steps = [step for _, step in sorted(session.steps.items())]
        calls = [step for step in steps if step.tool]
        outcome, reward = session.outcome, session.reward
        good = reward >= 1 if reward is not None else outcome == "success"
        label = "success" if good else "failure" if outcome == "failure" or reward is not None else "abstained"
        if label == "abstained" and calls and not calls[-1].error:
            label = "success"
        kept = [
            Step(each.sequence, each.tool, each.arguments, each.result[:SHOWN], each.pattern, each.error)
            for each in steps[-STEPS:]
        ]
        body = _encode({"agent": key[0], "goal": session.goal[:SHOWN], "task": session.task, "label": label, "s": kept})
        self.out.append(body)
        self.rows.append({"id": key[1], "label": label, "agent": key[0], "body": body.decode()})
        self.judged += 1
        taught: list[tuple[str, str, dict[str, Any]]] = []
        pending: dict[str, Step] = {}
        for step in calls:
            if step.pattern:
                pending.setdefault(step.tool, step)
            elif not step.error and (before := pending.pop(step.tool, None)) is not None:
                change = _changed(before.arguments, step.arguments)
                taught.append(
                    (before.pattern, "success", {"kind": "recovery", "error": before.error[:SHOWN], **change})
                )
        for step in pending.values():
            taught.append((step.pattern, "failure", {"kind": "recovery"}))
        if label == "success" and session.task and calls and not calls[-1].error:
            way = [f"{each.tool}({each.arguments[:100]})" for each in calls if not each.error][:24]
            taught.append((session.task, "success", {"kind": "strategy", "way": way}))
        if taught:
            self._teach(key, steps, taught)

    def _teach(self, key: tuple[str, str], steps: list[Step], taught: list[tuple[str, str, dict[str, Any]]]) -> None:
        persons = {
            value for step in steps for text in (step.arguments, step.result) for value in _PERSONAL_FIELD.findall(text)
        }
        for about, side, body in taught:
            said = orjson.dumps(body).decode() if side == "success" else ""
            for found in sorted(personal_data(said), key=lambda each: -each.start):
                said = f"{said[: found.start]}<{found.kind}>{said[found.end :]}"
            for person in persons:
                if person in said:
                    said = said.replace(person, "<name>")
            id = pattern_id(body["kind"], about, *body.get("now", ()))
            backers = self.items[id][side]
            if len(backers) < 64:
                backers.append((key[1], key[0], said.encode()))
                self.changed_items.add(id)

    def write(self) -> None:
        """Publish and write all that has changed."""
        for id in self.changed:
            thing = self.things[id]
            agents = Counter(counts[0] for counts in thing.sessions.values() if counts[0] not in DISTRUSTED)
            calls, failures = (sum(counts[at] for counts in thing.sessions.values()) for at in (1, 2))
            public = _encode(
                {
                    "id": id,
                    "said": thing.said,
                    "calls": calls,
                    "failures": failures,
                    "sessions": len(thing.sessions),
                    "agents": len(agents),
                    "by": list(agents)[:AGENTS],
                    "first": thing.first,
                    "last": thing.last,
                    "hours": thing.hours,
                }
            )
            self.out.append(public)
            self.rows.append({"id": id, "body": public.decode(), "state": _encode(thing.sessions).decode()})
        for id in self.changed_items:
            item = self.items[id]
            told = Counter(said for _, agent, said in item["success"] if agent not in DISTRUSTED).most_common(1)
            agents_of = {agent for _, agent, said in item["success"] if told and said == told[0][0]}
            body = told[0][0].decode() if told and len(item["success"]) > len(item["failure"]) else ""
            harmful = is_dangerous(ToldStep(sequence=0, role="tool", tool="shell", arguments=body))
            least = 3 if '"strategy"' in body[:30] else 2 if harmful else 1
            if body and len(agents_of) >= least:
                self.out.append(_encode({"id": id, "body": body, "agents": sorted(agents_of)}))
            self.rows.append({"id": id, "body": body, "state": _encode(item).decode()})
        self.changed.clear()
        self.changed_items.clear()
        self.since = 0


def _changed(failed: str, worked: str) -> dict[str, Any]:
    """Which arguments were changed, and to what; of texts, the words."""
    try:
        old, new = orjson.loads(failed), orjson.loads(worked)
        if isinstance(old, dict) and isinstance(new, dict):
            names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
            return {
                "was": [f"{name}={old.get(name)}"[:100] for name in names],
                "now": [f"{name}={new.get(name)}"[:100] for name in names],
            }
    except orjson.JSONDecodeError:
        pass
    before, after = failed.split(), worked.split()
    return {"was": sorted(set(before) - set(after))[:12], "now": sorted(set(after) - set(before))[:12]}


def from_file(file: Path) -> dict[str, Any]:
    """One pass over records."""
    records: list[Sent] = pickle.loads(file.read_bytes())
    work = Mission()
    gc.collect()
    gc.freeze()
    cpu = time.process_time()
    for start in range(0, len(records), BATCH_RECORDS):
        work.take(records[start : start + BATCH_RECORDS])
    work.write()
    spent = time.process_time() - cpu
    counts = {"things": len(work.things), "judgments": work.judged, "items": len(work.items), "rows": len(work.rows)}
    return {"cpu_seconds": spent, "loads_seconds": decode_once(records), "counts": counts}


if __name__ == "__main__":
    print(orjson.dumps(from_file(Path(sys.argv[1]))).decode())
