from __future__ import annotations

from msgspec.structs import replace

from fleetlore.calls.model import CallModel
from fleetlore.testing.sessions import call, trajectory
from fleetlore.wire.trajectory import Trajectory
from models.calls.resent import AGENT_SESSIONS, ResentCalls
from models.calls.training import train

UNAVAILABLE = "503 Service Unavailable"
LOCKED = "Error: the ledger is locked"


def session(number: int, error: str, *, works: bool, agents: int = 4, result: str = "done") -> Trajectory:
    again = call("shell", "make build", result) if works else call("shell", "make build", error=error)
    return trajectory(
        call("shell", "make build", error=error),
        again,
        call("shell", "ls", "file"),
        session=f"{error}{number}",
        agent=f"a{number % agents}",
        ended=float(number),
    )


def learned(*sessions: Trajectory) -> ResentCalls:
    calls = ResentCalls()
    for each in sessions:
        calls.learn(each)
    return calls


def is_transient(calls: ResentCalls, of: Trajectory) -> bool:
    return calls.corrected(of).calls[0].transient


def test_a_failure_that_never_passes_is_none_that_passes_by_itself() -> None:
    asked = session(99, UNAVAILABLE, works=False)
    assert is_transient(learned(), asked)  # as its words say
    assert not is_transient(learned(*(session(n, UNAVAILABLE, works=False) for n in range(12))), asked)


def test_one_that_passes_mostly_is_although_its_words_do_not_say_so() -> None:
    asked = session(99, LOCKED, works=False)
    assert not is_transient(learned(), asked)
    assert is_transient(learned(*(session(n, LOCKED, works=True) for n in range(12))), asked)


def test_one_agent_alone_decides_nothing_and_adds_no_more_than_a_few_sessions() -> None:
    asked = session(99, LOCKED, works=False)
    alone = [session(n, LOCKED, works=True, agents=1) for n in range(40)]
    assert not is_transient(learned(*alone), asked)
    others = [replace(session(100 + n, LOCKED, works=False), agent=f"b{n}") for n in range(2 * AGENT_SESSIONS)]
    assert not is_transient(learned(*alone, *others), asked)


def test_a_call_that_brought_nothing_back_tells_nothing() -> None:
    silent = [session(n, LOCKED, works=True, result=" ") for n in range(12)]
    assert learned(*silent).said() == {}


def test_another_call_in_between_is_no_unchanged_retry() -> None:
    steps = session(0, LOCKED, works=True).steps
    prepared = [replace(session(n, LOCKED, works=True), steps=(steps[0], steps[2], steps[1])) for n in range(12)]
    assert learned(*prepared).said() == {}


def test_a_version_holds_what_is_decided() -> None:
    passing = [session(n, LOCKED, works=True) for n in range(12)]
    lasting = [session(n, UNAVAILABLE, works=False) for n in range(12)]
    once = [session(0, "Error: seldom met", works=True)]
    model = CallModel.from_bytes(train([*passing, *lasting, *once]).weights)
    of = {passing[0].calls[0].pattern: (12, 12), lasting[0].calls[0].pattern: (0, 12)}
    assert {failure: (known.passed, known.sent) for failure, known in model.resent.items()} == of
