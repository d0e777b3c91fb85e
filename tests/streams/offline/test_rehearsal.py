from __future__ import annotations

import asyncio

from fleetlore.wire import events as ev
from streams.offline.logs import LoggedSession
from streams.offline.rehearsal import rehearse


def logged(session: str, agent: str, *calls: tuple[str, str | None], failed: bool = False) -> LoggedSession:
    made = LoggedSession(
        session, agent, "task-1", "count the users", "failure" if failed else "success", float(not failed)
    )
    for arguments, error in calls:
        data: dict[str, object] = {ev.TOOL: "sql", ev.ARGUMENTS: arguments, ev.RESULT: None if error else "7 rows"}
        made.events.append(("outcome", data | ({ev.ERROR_MESSAGE: error} if error else {})))
    return made


WRONG, RIGHT = ("SELECT nam FROM users", "no such column: 'nam'"), ("SELECT name FROM users", None)
SESSIONS = [
    logged("s1", "ann", WRONG, RIGHT),
    logged("s2", "ben", WRONG, RIGHT),
    logged("s3", "eve", WRONG, WRONG, failed=True),
]


def test_all_stages_have_worked() -> None:
    done: list[int] = []
    known = asyncio.run(rehearse(SESSIONS, seed=0, learn=True, progress=done.append))
    assert {each.session: each.ending for each in known.trajectories} == {
        "s1": "success",
        "s2": "success",
        "s3": "failure",
    }
    classes = [each for each in known.patterns if each.level == "class"]
    assert [(each.tool, each.sessions, each.agents) for each in classes] == [("sql", 3, 3)]
    assert any(item.kind == "recovery" and item.support == 2 for item in known.items)
    assert done == [3]


def test_the_order_of_the_files_means_nothing() -> None:
    assert asyncio.run(rehearse(SESSIONS, seed=3, learn=True)) == asyncio.run(
        rehearse(SESSIONS[::-1], seed=3, learn=True)
    )


def test_nothing_is_learned_from_what_is_only_read() -> None:
    read = asyncio.run(rehearse(SESSIONS, seed=0, learn=False, started=5e8))
    assert len(read.trajectories) == 3
    assert not read.patterns and not read.items
    assert min(each.started for each in read.trajectories) > 5e8


def test_secrets_are_masked_as_ever() -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6g7H8"
    read = asyncio.run(rehearse([logged("s1", "ann", (f"curl -H 'Authorization: {key}'", None))], seed=0, learn=False))
    assert key not in read.trajectories[0].steps[0].arguments
