"""Misuse in an agent's code raises at once, or is logged once if the agent must go on."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore import BlockingFleet, ConfigError, Fleet, NotOpen, Session, current_session, tool
from fleetlore.wire import events
from tests.doubles.recorder import Recorder
from tests.rows import for_each

USES: dict[str, Callable[[Session], Any]] = {
    "advise": lambda session: session.advise("sql", {}),
    "brief": lambda session: session.brief(),
    "action": lambda session: session.action("sql"),
    "begin": lambda session: session.begin("sql"),
    "record": lambda session: session.record("sql", result=1),
    "message": lambda session: session.message("user", "x"),
    "succeed": lambda session: session.succeed(),
    "fail": lambda session: session.fail(),
    "forbid": lambda session: session.forbid("rule"),
    "spend": lambda session: session.spend(tokens=1),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_session_is_used_inside_its_block(fleet: Fleet, recorder: Recorder, use: Callable[[Session], Any]) -> None:
    session = fleet.session("g", session_id="s1")
    with pytest.raises(NotOpen, match="session s1 was not entered"):
        use(session)
    with session:
        pass
    with pytest.raises(NotOpen, match="session s1 has been left"):
        use(session)
    assert recorder.kinds == ["session.started", "session.ended"]


async def test_a_call_without_an_end_holds_no_version_back_after_its_session(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is cancelled before its first step awaits no call."""
    swaps: list[str] = []
    monkeypatch.setattr(fleet.adapters, "calls", SimpleNamespace(apply_pending=lambda: swaps.append("now")))

    answer = asyncio.sleep(0)
    with fleet.session("g") as session:
        begun = session.begin("sql")
        tool(name="search")(lambda: answer)().close()
        answer.close()
        assert swaps == []
    assert swaps == ["now"]
    with fleet.session("g") as session:
        with session.action("sql"):
            begun.end()
        assert swaps == ["now"] * 2


async def test_a_fleet_is_entered_once_and_used_inside_its_block(unused_address: str) -> None:
    fleet = Fleet("agent", broker=unused_address, ready_seconds=0)
    async with fleet:
        late = fleet.session("g")
        with pytest.raises(NotOpen, match="was not entered"):
            await late.recall("x")
        with pytest.raises(NotOpen, match="was entered before"):
            await fleet.start()
    with pytest.raises(NotOpen, match="the fleet of agent agent has been left"), late:
        pass
    with pytest.raises(NotOpen, match="has been left"):
        fleet.feedback("s1", "failure")
    with pytest.raises(NotOpen, match="was entered before"):
        async with fleet:
            pass


def test_a_blocking_fleet_is_used_inside_its_block(unused_address: str) -> None:
    fleet = BlockingFleet("agent", broker=unused_address, ready_seconds=0)
    with pytest.raises(NotOpen, match=r"was not entered.*inside its `with` block"):
        fleet.flush(1)
    with fleet:
        session = fleet.session("g")
        with pytest.raises(NotOpen, match="was entered before"):
            fleet.__enter__()
    with pytest.raises(NotOpen, match="has been left"), session:
        pass
    for use in (lambda: fleet.ready(1), lambda: fleet.flush(1), lambda: session.recall("x"), fleet.__enter__):
        with pytest.raises(NotOpen):
            use()


def test_a_fleet_that_nobody_entered_says_so_once(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        with fleet.session("g"):
            pass
    (said,) = caplog.messages
    assert said == (
        "<Fleet agent of tenant default at nowhere:1, new> was not entered: until it is, nothing is sent and advice "
        "is empty"
    )


MISTAKES: dict[str, tuple[Callable[[Session], Any], str]] = {
    "an action never entered": (lambda session: session.action("sql", {"q": 1}), "made and never entered"),
    "succeed twice": (lambda session: (session.succeed(), session.succeed()), "a second time"),
    "succeed and fail": (lambda session: (session.succeed(), session.fail()), "a second time"),
    "no reward": (lambda session: session.succeed("yes"), "'yes' is no reward"),
    "no number": (lambda session: session.succeed(float("nan")), "nan is no reward"),
}


@pytest.mark.parametrize(("mistake", "said"), MISTAKES.values(), ids=MISTAKES)
def test_other_mistakes_are_logged_once_a_session(
    fleet: Fleet, recorder: Recorder, caplog: pytest.LogCaptureFixture, mistake: Callable[[Session], Any], said: str
) -> None:
    with fleet.session("g"):
        caplog.clear()
    with fleet.session("g", session_id="s1") as session:
        mistake(session)
        mistake(session)
    assert len([each for each in caplog.messages if each.startswith("session s1: ") and said in each]) == 1
    assert recorder.kinds == ["session.started", "session.ended"] * 2
    assert events.REWARD not in recorder.events[-1].data


def test_an_action_stays_as_it_ended(fleet: Fleet, recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    with fleet.session("g") as session:
        with session.action("sql") as action:
            action.result = 1
        action.fail("Late")
        with action:
            pass
        open_action = session.begin("sql")
    open_action.end(2)
    assert [recorder.error(each) for each in recorder.outcomes] == [None]
    assert [each.partition(": ")[2] for each in caplog.messages[1:]] == [
        "an action of sql is said to have failed after its end: it is not recorded",
        "an action of sql is begun again after its end: make one for each call",
        "a call of sql ended after the session, and how it ended is not recorded",
    ]


@for_each("about", {"goal": None}, {"goal": 5}, {"goal": "g", "task": None})
def test_a_session_is_about_a_text(fleet: Fleet, about: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"(goal|task) must be text, not (None|5)"):
        fleet.session(**about)


@for_each("broker", "junk", "host:port", "a:1,b")
def test_a_broker_without_a_port_is_refused(broker: str) -> None:
    with pytest.raises(ConfigError, match="is not HOST:PORT"):
        Fleet("agent", broker=broker)


def test_feedback_takes_a_number(fleet: Fleet) -> None:
    with pytest.raises(ConfigError, match="a finite number, not 'yes'"):
        fleet.feedback("s1", "failure", "yes")


FORKED = """
import logging, os, sys
from fleetlore import BlockingFleet, NotOpen

logging.basicConfig(format="log: %(message)s")


def in_child(fleet, session, action):
    for use in (
        lambda: fleet.session("g").__enter__(),
        lambda: session.advise("sql"),
        lambda: session.succeed(),
        lambda: fleet.feedback("s1", "failure"),
        lambda: session.recall("x"),
        lambda: fleet.flush(1),
        fleet.__enter__,
    ):
        try:
            use()
        except NotOpen as error:
            print(error, flush=True)
    action.end("of the parent")


with BlockingFleet("parent", broker=sys.argv[1], tenant=sys.argv[2]) as fleet:
    with fleet.session("g", session_id="s1") as session:
        action = session.begin("sql")
        child = os.fork()
        if not child:
            in_child(fleet, session, action)
            sys.exit(0)  # leaves both blocks
        assert os.waitpid(child, 0)[1] == 0
        action.end(1)
        session.succeed()
    if not os.fork():
        with BlockingFleet("child", broker=sys.argv[1], tenant=sys.argv[2]) as own, own.session("g"):
            pass
        print("child sent", own.sent, flush=True)
        os._exit(0)
    os.wait()
    assert fleet.flush(120)
    print("parent sent", fleet.sent, fleet.dropped)
"""


HELD = """
import os, threading, time
from fleetlore.agent.adapters import _loading
from fleetlore.agent.fleet import _counting
from fleetlore.limits import _counting as refusing

for lock in (_counting, _loading, refusing):
    lock.acquire()
    threading.Timer(0.2, lock.release).start()
    if not (child := os.fork()):
        os._exit(0 if lock.acquire(timeout=2) else 1)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_fork_copies_no_lock_that_another_thread_holds() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", HELD], check=True, timeout=60)


@pytest.mark.long
def test_a_forked_process_is_told_at_once(broker: EmbeddedBroker, tenant: str) -> None:
    command = [sys.executable, "-c", FORKED, broker.address, tenant]
    made = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert made.returncode == 0, made.stderr
    *forked, child, parent = made.stdout.splitlines()
    assert len(forked) == 7 and (child, parent) == ("child sent 2", "parent sent 3 0")
    assert all("entered before the process forked: open a fleet in each process" in each for each in forked)
    assert "ended after the session" in made.stderr and "Traceback" not in made.stderr


def left_open(address: str) -> tuple[Fleet, Session]:
    """A fleet and a session that were entered in an event loop that has ended since."""
    fleet = Fleet("agent", broker=address, ready_seconds=0)
    session = fleet.session("g")

    async def enter() -> None:
        await fleet.start()
        session.__enter__()

    asyncio.run(enter())
    return fleet, session


@pytest.mark.parametrize("thread", ["the loop's", "another"])
def test_a_fleet_whose_event_loop_has_ended_refuses_events(
    unused_address: str, thread: str, caplog: pytest.LogCaptureFixture
) -> None:
    fleet, session = left_open(unused_address)
    assert "1 events are lost: their fleet was not closed before its loop ended" in caplog.text

    def use() -> None:
        for act in (lambda: session.message("user", "hello"), fleet.session("h").__enter__, session.__exit__):
            with pytest.raises(NotOpen, match=r"event loop .* has ended: its events are lost; enter a new fleet"):
                act(None, None, None) if act == session.__exit__ else act()

    if thread == "another":
        with ThreadPoolExecutor() as pool:
            pool.submit(use).result()
    else:
        use()
    assert fleet.dropped == 4  # the start of the first session, and the three that were refused
    assert fleet.emitter.waiting == 0

    async def close() -> bool:
        flushed = await fleet.flush(0.01)
        await fleet.close(0.01)
        return flushed

    assert asyncio.run(close())  # everything that waited was given up and counted


def test_an_agents_own_exception_passes_though_the_event_loop_has_ended(unused_address: str) -> None:
    fleet, session = left_open(unused_address)
    with pytest.raises(ZeroDivisionError), session.action("sql"):
        1 / 0  # noqa: B018
    session.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert not session.is_open
    asyncio.run(fleet.close(0.01))


async def test_a_session_that_cannot_begin_is_not_the_current_one(unused_address: str) -> None:
    fleet, _ = await asyncio.to_thread(left_open, unused_address)
    with pytest.raises(NotOpen):
        fleet.session("h").__enter__()
    assert current_session() is None
    await fleet.close(0.01)
