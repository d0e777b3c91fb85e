from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import orjson
import pytest

from benchmarks import growth, pipeline, traffic
from benchmarks.sampling import ROOT, STEPS, Sampler
from fleetlore.stats.hashing import stable_hash
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


def test_a_record_of_large_events_stays_below_the_limit() -> None:
    _, runs = traffic.sessions()
    events = [
        event._replace(data={"fleetlore.goal": "x" * 20_000}) for event in islice(traffic.events_of(runs, 0), 100)
    ]
    assert max(len(record.value) for record in traffic.pack(events)) <= MAX_BYTES


def test_runs_are_repeated_as_other_sessions_and_every_session_ends() -> None:
    _, runs = traffic.sessions()
    total = sum(len(run.events) + 2 for run in runs)
    events = list(traffic.ended(islice(traffic.events_of(runs, 0), total + 50)))
    started = Counter(event.session for event in events if event.sequence == 0)
    ended = Counter(event.session for event in events if event.kind == "session.ended")
    assert started == ended
    assert set(started.values()) == {1}
    assert len(started) > len(runs)


async def test_a_worker_has_worked_in_all_of_it_when_the_clocks_stop() -> None:
    sent = traffic.traffic(500)
    done = await pipeline.run_once(sent.records, whole=True)
    assert done["events"] == sent.events
    assert done["dead_letters"] == 0
    assert done["judged"] == sum(record.value.count(b"session.ended") for record in sent.records)
    assert done["cpu_seconds"] > 0


async def test_sessions_that_grow_are_all_open_at_once_and_all_judged() -> None:
    made = pipeline.Pipeline(whole=True)
    said = await growth.sessions(200, made, window_events=100)
    assert said["n"] == 200
    assert made.processed == 200 * (growth.CALLS + 2)
    assert made.judged == 200
    assert made.dead_letters == 0


async def test_events_that_grow_are_sessions_of_their_own() -> None:
    made = pipeline.Pipeline(whole=True)
    near, far = await growth.events([200, 600], made, round_events=200)
    assert (near["n"], far["n"]) == (200, 600)
    assert made.processed >= 600
    assert made.dead_letters == 0
    assert made.judged >= 3 * 200 / 30


def test_samples_are_counted_for_the_function_that_worked() -> None:
    with Sampler() as sampler:
        for _ in range(200):
            stable_hash("x" * 400_000)
    functions = sampler.functions()
    assert max(functions, key=lambda name: functions[name]) == "fleetlore/stats/hashing.py stable_hash"
    assert sum(functions.values()) == pytest.approx(1)
    steps = sampler.steps()
    assert max(steps, key=lambda name: steps[name]) == "observations"


def test_every_path_that_has_a_step_is_there() -> None:
    assert [path for path in STEPS if not list(ROOT.glob(f"{path}*"))] == []
