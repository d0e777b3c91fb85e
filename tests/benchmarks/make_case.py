"""Small made-up sessions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.backtest.cases import Case
from tests.build import call, trajectory

Call = tuple[str, str | None]  # arguments, error
MakeCase = Callable[..., Case]


@pytest.fixture
def make_case() -> MakeCase:
    """`make_case("s1", "agent", "task", ("SELECT 1", None), failed=True)`."""

    def make(
        session: str,
        agent: str,
        task: str,
        *calls: Call,
        failed: bool | None = True,
        source: str = "shop",
        goal: str | None = None,
    ) -> Case:
        session_of = trajectory(
            *(call("sql", arguments, "done", error=error) for arguments, error in calls),
            session=session,
            agent=agent,
            task=task,
            goal=f"solve {task}" if goal is None else goal,
            ended=0.0,
            events=len(calls),
        )
        return Case(session_of, source, failed, session_of.started)

    return make
