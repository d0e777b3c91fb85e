"""Replay a strong language model's recorded lessons, and count what they add: `python -m benchmarks.taught DATA`.

No model is asked: `benchmarks/data/taught.json` holds the answers to the prompts of `models.llm.questions` by their
hash. The prompts are of the older half of the logs, in a drawn order. They are about the six failures that most agents
got past in SQL, the six in other logs, and the first sessions of three agents for each.

The teacher's own code checks each lesson, and stage 4 merges them. Agents meet the same failures in the later half. A
line is right if a later call of the tool worked with a name that the line brings and the failed call lacks. It is wrong
if later calls worked and none has such a name. The rival is the call that got the last older session past the failure.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import orjson

from benchmarks.runs import read_runs
from fleetlore.calls.call import KEYWORDS
from fleetlore.config import Settings
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.stats import wilson
from fleetlore.wire.trajectory import Judgment
from fleetlore.words import names_of
from models.backtest import Call, CallLog, Heard
from models.distil.cases import judged_calls, telling, worked_after
from models.judge import JudgeChain
from models.llm.client import Answers
from models.llm.questions import Teacher
from models.memory.candidate import Candidate
from sinks.metrics import Metrics
from streams.offline.memory_pipeline import EventClock, MemoryStore, OfflineRun, call_log, hear, run_logs
from streams.stage.base import Outgoing
from streams.stages.pipeline import Chain
from streams.stages.s4_items import ItemsStage

CASSETTE = Path(__file__).parent / "data" / "taught.json"
FAILURES, SESSIONS = 6, 3


def halves(sessions: Iterable[LoggedSession], seed: int = 0) -> tuple[list[LoggedSession], list[LoggedSession]]:
    """The sessions in a drawn order, the older and the later half."""
    order = sorted(sessions, key=lambda each: each.session)
    Random(seed).shuffle(order)
    return order[: len(order) // 2], order[len(order) // 2 :]


def chosen(learned: OfflineRun, order: dict[str, int], teacher: Teacher) -> tuple[dict[str, Judgment], set[str]]:
    """The sessions that the teacher is asked about, and the failures (ids) by which they were chosen."""
    judge = JudgeChain()
    met: list[defaultdict[str, dict[str, Judgment]]] = [defaultdict(dict), defaultdict(dict)]  # elsewhere, in SQL
    for trajectory in sorted(learned.trajectories, key=lambda each: order[each.session]):
        judged = Judgment(trajectory=trajectory.digest(), verdict=judge.judge(trajectory))
        calls = judged_calls(judged)
        if teacher.teaches(judged):
            by_failure = met[any(call.tool == "sql" for call in calls)]
            for place in telling(calls):
                if next(worked_after(calls, place), None) is not None:
                    by_failure[str(calls[place].step.pattern)].setdefault(trajectory.agent, judged)
    most = [sorted(kind.items(), key=lambda each: (-len(each[1]), each[0]))[:FAILURES] for kind in met]
    asked = [each for kind in most for _, agents in kind for each in list(agents.values())[:SESSIONS]]
    return {each.trajectory.id: each for each in asked}, {failure for kind in most for failure, _ in kind}


def recorded(answers: dict[str, Any]) -> tuple[Settings, Answers]:
    """Return settings of a model, and its answers by the prompt's hash."""
    known = Answers(":memory:")
    for key, answer in answers.items():
        known.put(key, orjson.dumps(answer).decode())
    return Settings(llm_url="http://127.0.0.1:9/v1", llm_model="recorded"), known  # part of the key, and never asked


async def merged(candidates: Sequence[Candidate]) -> list[MemoryItem]:
    """Merge the candidates in stage 4 and return the items that it publishes."""
    store, clock = MemoryStore(), EventClock()
    chain = Chain([ItemsStage(store, clock, Metrics("in-memory"))], store)
    await chain.deliver([Outgoing(each.tenant, "candidates", each.item_id, each.to_json()) for each in candidates])
    for _ in range(60):  # longer than stage 4 waits before it writes, in seconds of this clock
        clock.tick()
    await chain.deliver([])
    return [MemoryItem.from_json(body) for body in store.bodies("items")]


def episodes(past: Iterable[LoggedSession], failures: set[str]) -> dict[str, str]:
    """The call that got the last session past each failure."""
    found: dict[str, str] = {}
    for log in map(call_log, past):
        for place, call in enumerate(log.calls):
            if call.failure is not None and call.failure.class_ in failures and (ways := _worked(log, place)):
                found[call.failure.class_] = ways[0]
    return found


def count(heard: Iterable[Heard], failures: set[str], raw: dict[str, str] | None = None) -> str:
    """Count the failing calls at which a name is shown, by advice or by `raw`, which has calls by failure."""
    shown = right = wrong = 0
    for log, after in ((each.log, each.after) for each in heard):
        for place, call in enumerate(log.calls):
            if call.failure is None or call.failure.class_ not in failures:
                continue
            tips = after[place].shown if place in after else ()
            text = " ".join(name for tip in tips for name in tip.brings)
            names = names_of(text if raw is None else raw.get(call.failure.class_, "")) - names_of(call.text) - KEYWORDS
            shown += bool(names)
            if names and (ways := _worked(log, place)):
                is_right = any(not names.isdisjoint(names_of(way)) for way in ways)
                right, wrong = right + is_right, wrong + (not is_right)
    return "{} shown, {} right, {} wrong ({:.2f}–{:.2f})".format(shown, right, wrong, *wilson(right, right + wrong))


def _worked(log: CallLog, place: int) -> list[str]:
    tool = log.calls[place].tool
    return [each.text for each in log.calls[place + 1 :] if each.tool == tool and each.failure is None]


async def measure(sessions: Iterable[LoggedSession], answers: dict[str, Any]) -> dict[str, Any]:
    past, later = halves(sessions)
    learned = await run_logs(past, seed=0, learn=True)
    settings, known = recorded(answers)
    teacher = Teacher(settings, known, lambda result, tokens: None)
    asked, failures = chosen(learned, {each.session: place for place, each in enumerate(past)}, teacher)
    candidates = [lesson for judged in asked.values() for lesson in teacher.known(judged)]
    items = await merged(candidates)

    def fails(call: Call) -> bool:
        return call.failure is not None and call.failure.class_ in failures

    meets = [each for each in later if any(map(fails, call_log(each).calls))]
    ours = await hear(learned, meets)
    return {
        "prompts": len(asked),
        "proposed": sum(len(each["lessons"]) for each in answers.values()),
        "citations hold": len(candidates),
        "changes": len({each.item_id for each in candidates}),
        "published": len(items),
        "backed by a quorum": sum(each.agents >= settings.quorum for each in items),
        "later sessions": len(meets),
        "failing calls": sum(fails(call) for each in ours for call in each.log.calls),
        "last episode, raw": count(ours, failures, episodes(past, failures)),
        "without the teacher": count(ours, failures),
        "with the teacher": count(await hear(replace(learned, items=[*learned.items, *items]), meets), failures),
        "taught lines alone": count(await hear(replace(learned, patterns=[], items=items, calls=b""), meets), failures),
    }


if __name__ == "__main__":
    found = asyncio.run(measure(read_runs(Path(sys.argv[1])), orjson.loads(CASSETTE.read_bytes())))
    print(*(f"{name}: {value}" for name, value in found.items()), sep="\n")
