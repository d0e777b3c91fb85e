from __future__ import annotations

import asyncio
from typing import Any

from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev
from models.backtest.report import Learned
from streams.offline.hear import call_log, hear
from streams.offline.memory_pipeline import run_logs

GONE = "Table 'shop.cars' doesn't exist"


def session(agent: str, task: str, *calls: tuple[str, str | None]) -> LoggedSession:
    logged = LoggedSession(f"{agent}/{task}", agent, task, f"count {task}", "failure", 0.0, source="shop")
    logged.events.append(("message", {ev.ROLE: "user", ev.CONTENT: "please"}))
    for text, error in calls:
        data: dict[str, Any] = {ev.TOOL: "sql", ev.ARGUMENTS: text, ev.RESULT: None if error else "12"}
        logged.events.append(("outcome", data | ({ev.ERROR_MESSAGE: error} if error else {})))
    return logged


PAST = [session(agent, "t", ("select 1 from cars", GONE), ("select 1 from car_makers", None)) for agent in "abcd"]
NEW = [session(agent, "t", ("select 2 from cars", GONE), ("select 3 from car_makers", None)) for agent in "xy"]


def learned() -> Learned:
    run = asyncio.run(run_logs(PAST, seed=0, learn=True))
    return Learned(run.patterns, run.items, run.ended)


def test_an_agent_hears_before_each_call_and_after_each_failure() -> None:
    one, other = asyncio.run(hear(learned(), NEW))
    assert len(one.before) == 2 and set(one.after) == {0}
    assert one.log == call_log(NEW[0]) and one.log.calls[0].before == "please"
    assert one.before[0].warned and "'shop.cars'" in one.before[0].text
    # What got others past it is withheld from one session in twenty, drawn by the ids: of two, one is told.
    assert "car_makers" in "".join(each.text for heard in (one, other) for each in (heard.before[0], heard.after[0]))
    # Nothing is learned from a test session: the next one is warned of the same.
    assert [(each.warned, each.named, each.risk) for each in other.before] == [
        (each.warned, each.named, each.risk) for each in one.before
    ]


def test_a_fleet_that_knows_nothing_says_nothing() -> None:
    (said,) = asyncio.run(hear(Learned([], [], 0.0), NEW[:1]))
    assert said.characters == 0 and not any(each.warned for each in said.before)
