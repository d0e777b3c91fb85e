from __future__ import annotations

import msgspec
import pytest

from fleetlore.clock import SystemClock
from fleetlore.wire.incoming import Data
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import MAX_SCHEMA, MAX_TEXT, encode
from models.memory.pattern_state import Observation, Subject
from sinks.metrics import Metrics
from streams.stage.base import Record
from streams.stages.s1_sessions.steps import how_it_ended, step_of
from streams.stages.s2_patterns import PatternsStage


@pytest.mark.parametrize(
    ("ending", "reward", "ended"),
    [
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
    ],
)
def test_how_a_session_ended(ending: str | None, reward: float | None, ended: int) -> None:
    assert how_it_ended(ending, reward) == ended


def test_what_says_what_there_is_is_kept_longer_than_any_other_result() -> None:
    tables = "\n".join(f"CREATE TABLE t{number} (id INTEGER, name TEXT)" for number in range(200))

    def kept(result: str) -> int:
        return len(step_of(0, Data(tool="sql", arguments="{}", result=result), "", None, None, ()).result)

    assert kept(tables) == MAX_SCHEMA
    assert kept(tables[:3_000]) == 3_000
    assert kept("a row of words\n" * 200) == MAX_TEXT


def test_an_observation_of_an_older_worker_is_read() -> None:
    seen = Observation(Subject("t", "tool", "bash"), 1, 2, 3, 1, 5.0, 6.0, 2, "alice")
    older = msgspec.json.decode(encode(seen))[:7]
    assert msgspec.convert(older, Observation) == Observation(seen.subject, 1, 2, 3, 1, 5.0, 6.0)


class Rows:
    """A store without a row."""

    async def resolve(self, collection: str) -> str:
        return collection

    async def get(self, *_: object) -> dict[str, object]:
        return {}

    async def rows(self, *_: object, **__: object):  # type: ignore[no-untyped-def]
        for row in ():
            yield row


async def test_the_newest_hour_of_the_tools_is_a_metric() -> None:
    metrics = Metrics("worker")
    stage = PatternsStage(Rows(), SystemClock(), metrics)  # type: ignore[arg-type]
    seen = [
        Observation(
            Subject(f"id{tool}", "tool", f"tool-{tool}"), session, 2, 40, 10 * tool, 3600.0 * hour, 3600.0 * hour
        )
        for tool, session, hour in ((0, 1, 7), (1, 2, 7), (2, 3, 7), (2, 4, 5), (3, 5, 6))
    ]
    records = [Record(topic("acme", "observations"), 0, n, None, encode([each]), {}) for n, each in enumerate(seen)]
    await stage.process(records)
    await stage.process([])
    names = ("fleetlore_tool_calls", "fleetlore_tool_failures", "fleetlore_degraded_tools")
    assert [metrics.registry.get_sample_value(name, {"tenant": "acme"}) for name in names] == [120.0, 30.0, 2.0]
