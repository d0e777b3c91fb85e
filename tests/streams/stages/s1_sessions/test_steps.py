from itertools import permutations
from typing import Any

import msgspec
from msgspec.structs import replace

from fleetlore.clock import SystemClock
from fleetlore.testing import FakeClock
from fleetlore.wire.decode import ENDED, OUTCOME, STARTED, Data
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import MAX_SCHEMA, MAX_TEXT, encode
from models.memory.pattern_state import Observation, Subject
from sinks.metrics import Metrics
from streams.offline.memory_pipeline import MemoryStore
from streams.stage.base import Record
from streams.stages.s1_sessions.open_session import OpenSession
from streams.stages.s1_sessions.steps import how_it_ended, step_of
from streams.stages.s2_patterns import PatternsStage
from tests.build import incoming
from tests.rows import for_each


@for_each(
    "ending, reward, ended",
    ("success", None, 1),
    ("failure", None, 2),
    ("unknown", None, 0),
    ("continued", None, 0),
    (None, None, 0),
    (None, 1.0, 1),
    ("unknown", 0.0, 2),
    ("unknown", 0.5, 0),
    ("success", 0.5, 1),
    ("success", 1.0, 1),
    ("success", 0.0, 0),
    ("failure", 1.0, 0),
)
def test_how_a_session_ended(ending: str | None, reward: float | None, ended: int) -> None:
    assert how_it_ended(ending, reward) == ended


def test_what_says_what_there_is_is_kept_longer_than_any_other_result() -> None:
    tables = "\n".join(f"CREATE TABLE t{number} (id INTEGER, name TEXT)" for number in range(200))

    def kept(result: str) -> int:
        return len(step_of(0, Data(tool="sql", arguments="{}", result=result), "", None, None).result)

    assert kept(tables) == MAX_SCHEMA
    assert kept(tables[:3_000]) == 3_000
    assert kept("a row of words\n" * 200) == MAX_TEXT


def test_an_observation_of_an_older_worker_is_read() -> None:
    seen = Observation(Subject("t", "tool", "bash"), 1, 2, 3, 1, 5.0, 6.0, 2, "alice")
    older = msgspec.json.decode(encode(seen))[:7]
    assert msgspec.convert(older, Observation) == Observation(seen.subject, 1, 2, 3, 1, 5.0, 6.0)


def seen(tool: str, session: int, hour: int, calls: int = 40, failures: int = 0) -> Observation:
    return Observation(Subject(f"id {tool}", "tool", tool), session, 2, calls, failures, 3600.0 * hour, 3600.0 * hour)


async def show(stage: PatternsStage, *observations: Observation) -> None:
    await stage.process(
        [Record(topic("acme", "observations"), 0, n, None, encode([each]), {}) for n, each in enumerate(observations)]
    )
    await stage.process([])


def shown(metrics: Metrics, name: str) -> dict[str, float]:
    return {
        sample.labels["tool"]: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"fleetlore_{name}" and sample.labels["tenant"] == "acme"
    }


async def test_the_newest_hour_of_each_tool_is_a_metric() -> None:
    metrics = Metrics("worker")
    stage = PatternsStage(MemoryStore(), SystemClock(), metrics)
    await show(
        stage,
        seen("a", 1, 7), seen("b", 2, 7, 40, 10), seen("b", 6, 6, 40, 10), seen("c", 3, 7, 40, 20),
        seen("c", 4, 5), seen("d", 5, 6, 40, 30), seen("e", 7, 7, 40, 40),
    )  # fmt: skip
    assert shown(metrics, "tool_calls") == {"a": 40.0, "b": 40.0, "c": 40.0, "e": 40.0}
    assert shown(metrics, "tool_failures") == {"a": 0.0, "b": 10.0, "c": 20.0, "e": 40.0}
    # `b` fails as often as ever, and nothing is known of the past of `e`.
    assert shown(metrics, "degraded_tools") == {"a": 0.0, "b": 0.0, "c": 1.0, "e": 0.0}
    await show(stage, seen("d", 8, 8))
    assert shown(metrics, "tool_calls") == {"d": 40.0}, "what was not called in the newest hour has no series"


async def test_series_are_for_the_tools_that_are_called_most() -> None:
    """Agents may name their tools as they like; one may be named as the rest is."""
    metrics = Metrics("worker")
    stage = PatternsStage(MemoryStore(), SystemClock(), metrics)
    before = [seen(f"t{n}", 1000 + n, 6, 40) for n in range(1, 121)]
    await show(stage, seen("other", 2000, 7, 500), *before, *(seen(f"t{n}", n, 7, n, n) for n in range(1, 121)))
    calls, failures = shown(metrics, "tool_calls"), shown(metrics, "tool_failures")
    assert len(calls) == 100 and "t22" in calls and "t21" not in calls
    assert calls["other"] == 500 + sum(range(1, 22)) and failures["other"] == sum(range(1, 22))
    assert shown(metrics, "degraded_tools")["other"] > 1


async def test_no_agent_alone_displaces_the_series_of_other_agents_nor_fills_the_memory() -> None:
    metrics = Metrics("worker")
    stage = PatternsStage(MemoryStore(), FakeClock(), metrics)
    hour = int(FakeClock().now() // 3600)
    pay = [replace(seen("pay", session, hour), agent=session) for session in (1, 2)]
    await show(stage, *pay, *(seen(f"t{n}", 10 + n, hour, 90) for n in range(2_000)))
    calls = shown(metrics, "tool_calls")
    assert len(calls) == 101 and calls["pay"] == 80.0, "one agent invented the others"
    assert calls["other"] == 90.0 * (1_000 - 100)
    await show(stage, seen("t", 9_999, hour + 1))
    assert shown(metrics, "tool_calls") == calls, "a sender dates events some minutes ahead"


NOW = 1_767_225_600.0
Made = tuple[str, str | None]


def again(calls: list[Made], order: tuple[int, ...] | None = None, seconds: float = 1.0) -> set[int]:
    """What the observations of failures say, but of those that were not sent again."""
    data: list[tuple[str, dict[str, Any]]] = [(STARTED, {"goal": "g"})]
    for arguments, error in calls:
        result = "" if error else "ok"
        data.append((OUTCOME, {"tool": "sql", "arguments": arguments, "result": result, "error_message": error}))
    data.append((ENDED, {"outcome": "success"}))
    session = OpenSession("default", "s", "a", 0, 0, NOW)
    for number in order or range(len(data)):
        kind, fields = data[number]
        time = NOW + seconds * number
        session.add(incoming(kind, number, time, **fields), time)
    seen = [each for each in session.take_observations() if each.subject.level in ("class", "family")]
    return {each.again for each in seen} - {0}


A, B, WORKED = ("select a", "no such column: a"), ("select b", "no such column: b"), ("select 1", None)


@for_each(
    "calls, expected",
    ([A, A], {1}),
    ([A, A, A], {1}),
    ([A, ("select a", None)], {2 + 1}),
    ([A, A, ("select a", None)], {2 + 1}),  # it worked in the end, one second after it failed last
    ([A, B, A], {1}),  # no call worked between
    ([A, WORKED, A], set()),  # something was changed that may help: a test run after an edit
    ([A, ("select a, b", "no such column: a")], set()),  # other arguments
    ([A, ("select a ", "no such column: a")], set()),
    ([A, *[(f"select {n}", f"no such column: c{n}") for n in range(32)], A], set()),  # too long ago
    ([WORKED, WORKED], set()),
    ([A], set()),
)
def test_only_the_same_call_with_no_call_that_worked_between_is_sent_again(
    calls: list[Made], expected: set[int]
) -> None:
    assert again(calls) == expected


def test_the_order_of_arrival_leaves_no_trace() -> None:
    assert {
        frozenset(again([A, A, ("select a", None)], order)) for order in permutations(range(5)) if order[0] == 0
    } == {frozenset({3})}


def test_the_wait_is_counted_in_seconds() -> None:
    assert again([A, ("select a", None)], seconds=30) == {2 + 30}
