"""Time `advise()` before a call when the fleet knows 10,000 failure patterns: in memory, no network.

The patterns are those of the real runs' failed calls, each with the health of its kind of call, a recovery and a
lesson. The questions are the real runs' calls, in the order in which a fleet would make them. So most ask about a known
kind of call with new arguments. Each call is timed by the thread's CPU clock, with the garbage collector on; the wall
clock would include other work of the machine. A question counts with the least time of five rounds, each with a new
index and empty caches. That leaves out pauses of the garbage collector, and a processor that others slow down; a row
has the quickest round alone. The figure is the 99th percentile. Questions with arguments that were asked before are
cheaper; the text for a prompt has a separate row.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from itertools import islice
from statistics import median
from typing import Any

from benchmarks.cpu import forget_answers
from benchmarks.report import Report, Row
from benchmarks.traffic import events_of, sessions
from fleetlore.advice.advice import Advice, advise
from fleetlore.advice.situation import Asked, Asker, CallHistory, FailedCall, Known, Situation
from fleetlore.calls.call import MadeCall
from fleetlore.fingerprint.fingerprint import Failure, call_id, failure_of
from fleetlore.fingerprint.names import failure_kind
from fleetlore.recall.index import LoreIndex
from fleetlore.wire import events as ev
from fleetlore.wire.lore import MemoryItem, Pattern

PATTERNS = 10_000
QUESTIONS = 50_000
QUICK_QUESTIONS = 2_000
ROUNDS = 5
BAR_MICROSECONDS = 60.0
NOW = 1_767_225_600.0

Call = tuple[str, Any]


_NEW = CallHistory("")


def asked_about(tool: str, arguments: object, history: CallHistory = _NEW) -> Situation:
    return Situation(Asked(MadeCall(tool, arguments)), Asker(), Known(NOW), history)


def after(failure: Failure) -> CallHistory:
    """A session whose last call failed so."""
    text, history = failure.template, CallHistory("")
    kind = failure_kind(failure.error_class, text, text, "")
    history.failed = FailedCall(MadeCall(failure.tool, ""), text, failure, kind)
    return history


def run(quick: bool) -> Report:
    source, calls = asked(QUICK_QUESTIONS if quick else QUESTIONS)
    rounds = [_round(calls) for _ in range(1 if quick else ROUNDS)]
    known, told, _ = rounds[0]
    times = zip(*(times for _, _, times in rounds), strict=True)
    micros, again, by_words, texts = ([min(each) for each in zip(*of, strict=True)] for of in times)
    kinds = {call_id(*call) for call in calls}
    figure = percentile(micros, 99)
    note = f"{known:,} patterns; {len(calls):,} calls of {source}, of {len(kinds):,} kinds; "
    note += f"{told / len(calls):.0%} got advice; the least of {len(rounds)} rounds for each"
    tails = {
        "asked before with the same arguments": again,
        "after an error that is new, by words": by_words,
        "its text for a prompt": texts,
    }
    rows = [
        Row("advise() before a call", figure, "µs p99", note=note),
        Row("the same", median(micros), "µs p50"),
        Row("the same", percentile(micros, 99.9), "µs p99.9"),
        Row("the same, in the quickest round alone", min(percentile(of[0], 99) for _, _, of in rounds), "µs p99"),
    ]
    for name, of in tails.items():
        rows += Row(name, percentile(of, 99), "µs p99"), Row("the same", median(of), "µs p50")
    unit = "µs of CPU, 99th percentile"
    return Report("advice", figure, BAR_MICROSECONDS, unit, higher_is_better=False, rows=tuple(rows))


def _round(calls: list[Call]) -> tuple[int, int, tuple[list[float], ...]]:
    """Ask all questions with empty caches. Returns the numbers of patterns and of questions with advice, and the
    microseconds: of each question, of some asked again, after errors in new words, and of the texts.
    """
    forget_answers()
    index, known = learned(calls)
    first, told = timed(calls, lambda call: advise(index, asked_about(*call)))
    again, _ = timed(calls[-1000:] * 5, lambda call: advise(index, asked_about(*call)))
    unheard = [failure_of(*call, None, f"nothing like `{n}` was ever heard of") for n, call in enumerate(calls[:1000])]
    failed = [(failure.tool, after(failure)) for failure in unheard]
    by_words, _ = timed(failed, lambda each: advise(index, asked_about(each[0], {}, each[1])))
    texts, _ = timed([advice for advice in told if advice], lambda advice: advice.text)
    return known, sum(map(bool, told)), (first, again, by_words, texts)


def asked(count: int) -> tuple[str, list[Call]]:
    source, runs = sessions()
    outcomes = (event.data for event in events_of(runs, seed=1) if event.kind == "outcome")
    return source, [(data[ev.TOOL], data[ev.ARGUMENTS]) for data in islice(outcomes, count)]


def learned(calls: list[Call]) -> tuple[LoreIndex, int]:
    """Build an index of `PATTERNS` failures: those of the real runs, then the same with other tool names."""
    index = LoreIndex()
    runs = sessions()[1]
    failed = [
        (data[ev.TOOL], data[ev.ARGUMENTS], data.get(ev.ERROR_TYPE), data[ev.ERROR_MESSAGE])
        for run in runs
        for kind, data in run.events
        if kind == "outcome" and ev.ERROR_MESSAGE in data
    ]
    met = Counter(call_id(*call) for call in calls)
    exact: set[str] = set()
    copy = 0
    while len(exact) < PATTERNS:
        for tool, arguments, error_type, message in failed:
            failure = failure_of(tool + "'" * copy, arguments, error_type, message)
            if len(exact) < PATTERNS or failure.exact in exact:
                exact.add(failure.exact)
                _put(index, failure, call_id(failure.tool, arguments), met)
        copy += 1
    return index, len(exact)


def _put(index: LoreIndex, failure: Any, call: str, met: Counter[str]) -> None:
    old = index.patterns.get(failure.exact)
    failures = 1 + (old.failures if old is not None else 0)
    common: dict[str, Any] = {"tenant": "default", "tool": failure.tool, "last_seen": NOW - 60.0}
    seen: dict[str, Any] = {"calls": failures, "failures": failures, "sessions": failures, "agents": failures}
    index.put_pattern(
        Pattern(
            id=failure.exact,
            level="exact",
            error_class=failure.error_class,
            template=failure.template,
            shape=failure.shape,
            parent=failure.class_,
            call=call,
            transient=failure.transient,
            **common,
            **seen,
        )
    )
    if failure.transient:
        index.put_pattern(Pattern(id=failure.class_, level="class", transient=True, **common, **seen))
        return
    health = index.patterns.get(call)
    failed = 1 + (health.failures if health is not None else 0)
    index.put_pattern(
        Pattern(
            id=call, level="call", calls=failed + met[call], failures=failed, sessions=failed, agents=failed, **common
        )
    )
    texts: dict[str, Any] = {"title": "t" * 60, "description": "d" * 120, "content": "c" * 400, "when": "w" * 60}
    backed: dict[str, Any] = {**texts, **common, "support": failures + 1, "agents": 2}
    index.put_pattern(Pattern(id=failure.class_, level="class", parent=failure.family, **common, **seen))
    recovery = {**backed, "when": f"{failure.tool} fails with: {failure.template}"}
    index.put_item(MemoryItem(id=f"r-{failure.exact}", kind="recovery", pattern=failure.class_, **recovery))


def timed(questions: list[Any], answer: Callable[[Any], Any]) -> tuple[list[float], list[Any]]:
    clock = time.thread_time_ns
    micros, answers = [], []
    for question in questions:
        started = clock()
        given: Advice | str = answer(question)
        micros.append((clock() - started) / 1000)
        answers.append(given)
    return micros, answers


def percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
