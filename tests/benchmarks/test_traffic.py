from pathlib import Path

import orjson
import pytest

from benchmarks import pipeline, traffic
from fleetlore.wire.events import MAX_BYTES, MAX_EVENTS
from fleetlore.wire.topics import partition_for


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the folder of real runs: a few sessions of the scripted world."""
    monkeypatch.setattr(traffic, "REAL_DATA", tmp_path / "missing")
    monkeypatch.setattr(traffic, "WORLD_SESSIONS", 20)


def test_records_are_filled_as_the_emitter_fills_them() -> None:
    sent = traffic.traffic(1_000)
    assert sent.source == "the scripted world"
    assert sent.events >= 1_000
    sequences: dict[str, int] = {}
    for record in sent.records:
        events = orjson.loads(record.value)
        assert record.events == len(events) <= MAX_EVENTS
        assert len(record.value) <= MAX_BYTES
        for event in events:
            assert partition_for(event["session"], traffic.PARTITIONS) == record.partition
            assert event["sequence"] == sequences.get(event["session"], -1) + 1
            sequences[event["session"]] = event["sequence"]


async def test_a_worker_has_worked_in_all_of_it_when_the_clocks_stop() -> None:
    sent = traffic.traffic(500)
    done = await pipeline.run_once(sent.records)
    assert done["events"] == sent.events
    assert done["dead_letters"] == 0
    assert done["judged"] == sum(record.value.count(b"session.ended") for record in sent.records)
    assert done["cpu_seconds"] > 0
