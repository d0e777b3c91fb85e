"""Patterns learn how the sessions ended that met them, so that harmless ones are told from harmful ones."""

from __future__ import annotations

from typing import Any

from fleetlore.recall.index import worth_showing
from fleetlore.wire.lore import Pattern

HARMLESS = ("find", {"email": "a@x.org"}, "", "Error: user not found")
HARMFUL = ("find", {"email": "a@x.org"}, "", "disk full")
FINE = ("find", {"email": "b@x.org"}, "found", None)


async def test_harmless_and_harmful_patterns_are_told_apart(pipeline: Any) -> None:
    story = pipeline.story
    sessions = [
        story.session(
            f"{name}-{n}", call, FINE, outcome="failure" if n in failing else "success", agent=f"agent-{n % 5}"
        )
        for name, call, failing in (
            ("harmless", HARMLESS, {1, 2}),
            ("harmful", HARMFUL, set(range(9))),
            ("fine", FINE, {1, 2, 3}),
        )
        for n in range(10)
    ]
    unsure = story.session("unsure", HARMFUL, outcome="unknown")
    await pipeline.send([event for session in sessions for event in session] + unsure)
    await pipeline.drain()
    rows = [Pattern(**row) for row in await pipeline.bodies("patterns")]
    [tool] = [row for row in rows if row.level == "tool"]
    shown = {
        row.template: (row.sessions, row.sessions_ended, row.sessions_failed) for row in rows if row.level == "class"
    }
    assert shown == {"user not found": (10, 10, 2), "disk full": (11, 10, 9)}
    assert (tool.sessions_ended, tool.sessions_failed) == (30, 14)
    assert {row.template for row in rows if row.level == "class" and worth_showing(row, tool)} == {"disk full"}
    assert sorted(name for name, _, _ in tool.by_agent) == [*(f"agent-{n}" for n in range(5)), "agent-of-unsure"]
