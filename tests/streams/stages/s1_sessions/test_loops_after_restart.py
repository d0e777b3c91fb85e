"""A session that pauses has the same counts, whether the worker remembers it, restarts, or never closed it."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from fleetlore.wire.decode import ENDED, MESSAGE, OUTCOME, STARTED, Incoming
from fleetlore.wire.trajectory import DIGEST_BYTES, Trajectory
from streams.stages.s1_sessions.open_session import OpenSession
from streams.stages.s1_sessions.parse import clean
from tests.build import incoming

NOW = 1_767_225_600.0
DAY = "2026-01-01T10:%02d:00Z"

Kind = Callable[[int], dict[str, Any]]
Counts = dict[str, tuple[int, int]]


def call(arguments: Any, result: Any = "same", error: str | None = None, tool: str = "sql") -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments, "result": result, "error_message": error}


def words(beginning: str, count: int) -> str:
    return " ".join(f"{beginning}{number}" for number in range(count))


# The kinds of calls that a loop is made of; each is given its place in the session.
KINDS: dict[str, Kind] = {
    "short": lambda place: call("select 1"),
    "another": lambda place: call("select 2", "other"),
    "new": lambda place: call(f"select {place} from t{place}"),
    "polled": lambda place: call("poll", f"{place} % done"),
    "stamped": lambda place: call("now", f"as of {DAY % (place % 60)}"),
    "500 characters": lambda place: call({"q": "x" * 500}),
    "500 that end otherwise": lambda place: call({"q": "x" * 499 + "y"}),
    "3,000 characters": lambda place: call({"q": "x" * 3_000}),
    "3,000 that end otherwise": lambda place: call({"q": "x" * 2_999 + "y"}),
    "a result of 500": lambda place: call("read", "r" * 500),
    "a result of 500 that ends otherwise": lambda place: call("read", "r" * 499 + "s"),
    "a long result with a time": lambda place: call("look", "r" * 900 + f" as of {DAY % (place % 60)}"),
    "a result of 3,000": lambda place: call("load", "r" * 3_000),
    "nothing": lambda place: call("note", ""),
    "failed": lambda place: call(f"select a{place} from users where id = 1 order by name", "", "no such column: a"),
    "failed with long arguments": lambda place: call(f"{words('word', 80)} v{place}", "", "disk is full"),
    "failed, alike at its end": lambda place: call(
        f"again {words(f'w{place}_', 30)} {words('same', 90)}", "", "disk is full"
    ),
    "said": lambda place: {"role": "assistant", "content": f"step {place}"},
}
names = st.sampled_from([each for each in KINDS if each != "new"])
# Loops, and much between them: a digest keeps the first and the last of many calls.
parts = st.one_of(
    st.lists(names, min_size=1, max_size=6),
    st.lists(names, min_size=1, max_size=4).flatmap(lambda around: st.sampled_from([around * 2, around * 4])),
    st.integers(1, 10).map(lambda count: ["new"] * count),
    st.tuples(st.sampled_from(["new", "said"]), st.sampled_from([150, 200])).map(lambda many: [many[0]] * many[1]),
)


def event(sequence: int, kind: str, data: dict[str, Any]) -> Incoming:
    made = incoming(kind, sequence, NOW + sequence, **data)
    clean([made])
    return made


def counted(calls: Sequence[str], pauses: Sequence[int], *, restart: bool, missing: int = -1) -> Counts:
    """(calls, failures) by subject, as the next stage merges them. The session is closed at each pause."""
    session = OpenSession("acme", "s", "a", 0, 0)
    session.add(event(0, STARTED, {"goal": "g"}), NOW)
    merged: Counts = {}
    late: Incoming | None = None
    for place, name in enumerate(calls, 1):
        data = KINDS[name](place)
        made = event(place, MESSAGE if name == "said" else OUTCOME, data)
        if place == missing:
            late = made
        else:
            session.add(made, NOW + place)
        if place in pauses:
            session = _paused(session, merged, restart=restart)
    if late is not None:
        session.add(late, NOW + missing)
    _paused(session, merged, restart=False)
    return merged


def _paused(session: OpenSession, merged: Counts, *, restart: bool) -> OpenSession:
    for seen in session.take_observations():
        known = merged.get(seen.subject.id, (0, 0))
        merged[seen.subject.id] = max(known[0], seen.calls), max(known[1], seen.failures)
    if not restart:
        return session
    stored = Trajectory.from_json(session.close()[0].to_bounded_json(900_000)).digested()[1]
    assert len(stored) <= DIGEST_BYTES
    return OpenSession.restored(Trajectory.from_json(stored), 0)


@given(
    calls=st.lists(parts, min_size=1, max_size=5).map(lambda some: [name for part in some for name in part][:500]),
    pauses=st.lists(st.integers(1, 500), min_size=1, max_size=3),
    missing=st.just(-1) | st.integers(1, 40),
)
@example(calls=["3,000 characters"] * 4, pauses=[2], missing=-1)
@example(calls=["500 characters"] * 60, pauses=[58], missing=-1)
@example(calls=["a result of 3,000"] * 60, pauses=[58], missing=-1)
@example(calls=["new"] * 46 + ["short"] * 2 + ["new"] * 208 + ["short"] * 2 + ["new"] * 142, pauses=[400], missing=-1)
@example(calls=["new"] * 60 + ["short"] * 9 + ["new"] * 300 + ["short"] * 9, pauses=[371], missing=-1)
@example(calls=["failed with long arguments", "failed"] * 250, pauses=[251], missing=-1)
@example(calls=["short"] * 9, pauses=[5], missing=3)
@example(calls=["3,000 characters"] * 9, pauses=[5], missing=3)
@example(calls=["failed with long arguments"] * 60, pauses=[57, 58], missing=-1)
@example(calls=["failed, alike at its end"] * 60, pauses=[57], missing=-1)
@example(
    calls=["new"] * 45 + ["short"] * 2 + ["new"] * 100 + ["said"] * 144 + ["short"] * 2, pauses=[291, 292], missing=-1
)
@example(calls=["new"] * 145 + ["short"] * 2 + ["said"] * 144 + ["short"] * 2, pauses=[291], missing=-1)
def test_a_restart_in_a_pause_changes_no_count_and_no_loop(calls: list[str], pauses: list[int], missing: int) -> None:
    remembered = counted(calls, pauses, restart=False, missing=missing)
    assert counted(calls, (), restart=False, missing=missing) == remembered
    assert counted(calls, pauses, restart=True, missing=missing) == remembered


def test_the_bytes_of_a_session_that_ended_hold_nothing_to_compare() -> None:
    session = OpenSession("acme", "s", "a", 0, 0)
    session.add(event(0, STARTED, {"goal": "g"}), NOW)
    for place in range(1, 5):
        session.add(event(place, OUTCOME, KINDS["3,000 characters"](place)), NOW + place)
    assert session.close()[0].loops and any(each.mark for each in session.close()[0].steps)
    session.add(event(5, ENDED, {"outcome": "success"}), NOW + 5)
    ended = orjson.loads(session.close()[0].to_json())
    assert "loops" not in ended and not any("mark" in each for each in ended["steps"])


def test_workers_of_different_processes_compare_calls_by_the_same_marks() -> None:
    """A hash of Python's own differs from one process to the next."""
    here = Path(__file__)
    code = f"import sys; sys.path.append({str(here.parent)!r}); import {here.stem} as test; print(test.stored())"
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    elsewhere = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert elsewhere.strip() == str(stored()) and "|" in elsewhere


def stored() -> list[str]:
    """Marks of the calls of a session that goes on."""
    session = OpenSession("acme", "s", "a", 0, 0)
    session.add(event(0, STARTED, {"goal": "g"}), NOW)
    for place, name in enumerate(("500 characters", "3,000 characters", "a result of 3,000"), 1):
        session.add(event(place, OUTCOME, KINDS[name](place)), NOW + place)
    return [each.mark for each in session.close()[0].steps]
