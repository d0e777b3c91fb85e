"""The script that does the mission in the least code does it."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.peers.mission import Mission
from benchmarks.traffic import Sent

_START, _OUTCOME, _END = (f"ai.fleetlore.{name}.v1" for name in ("session.started", "outcome", "session.ended"))


def _event(session: str, sequence: int, kind: str, **data: object) -> dict[str, object]:
    time = f"2026-01-01T00:00:{sequence:02}Z"
    return {
        "type": kind,
        "agent": f"agent-{session}",
        "session": session,
        "sequence": sequence,
        "time": time,
        "data": {name.replace("__", "."): value for name, value in data.items()},
    }


def _session(name: str) -> list[dict[str, object]]:
    call = {"gen_ai__tool__name": "sql", "error__message": "no such table: cars, token=ghp_" + "a" * 36}
    return [
        _event(name, 0, _START, fleetlore__goal="count", fleetlore__task="count"),
        _event(name, 1, _OUTCOME, **call, gen_ai__tool__call__arguments={"q": "cars", "email": "ann@mail.example.org"}),
        _event(
            name,
            2,
            _OUTCOME,
            gen_ai__tool__name="sql",
            gen_ai__tool__call__result="3",
            gen_ai__tool__call__arguments={"q": "vehicles", "email": "bob@mail.example.org"},
        ),
        _event(name, 3, _END, fleetlore__outcome="success"),
    ]


@pytest.fixture
def mission() -> Mission:
    work = Mission()
    for name in ("a", "b", "c"):
        work.take([Sent(0, 4, msgspec.json.encode(_session(name)))])
        work.take([Sent(0, 4, msgspec.json.encode(_session(name)[:3]))])
    work.write()
    return work


def test_a_failure_is_told_at_once_and_what_got_past_it_in_the_end(mission: Mission) -> None:
    first = msgspec.json.decode(mission.out[0])
    assert first["agents"] == ["agent-a"] and "no such table" in first["said"][1]
    recovery = next(value for value in map(bytes.decode, mission.out) if '"body":"{\\"kind\\":\\"recovery' in value)
    assert "q=vehicles" in recovery and '"agents":["agent-a","agent-b","agent-c"]' in recovery


def test_no_secret_and_no_person_is_told(mission: Mission) -> None:
    assert not any("ghp_" in row["body"] for row in mission.rows)
    told = [row["body"] for row in mission.rows if row["body"].startswith('{"kind"')]
    assert told and not any("@mail.example.org" in body for body in told)


def test_a_session_is_judged_once_and_a_way_is_told_of_three(mission: Mission) -> None:
    assert mission.judged == 3
    assert sum('"strategy' in value.decode() for value in mission.out) == 1
