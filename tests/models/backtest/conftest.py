"""Small made-up sessions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleetlore.patterns import call_id, failure_of
from fleetlore.trajectory import Step, Trajectory
from models.backtest.cases import Case

Call = tuple[str, str | None]  # arguments, error
MakeCase = Callable[..., Case]


def step(number: int, arguments: str, error: str | None, tool: str = "sql") -> Step:
    failure = failure_of(tool, arguments, None, error) if error else None
    return Step(
        sequence=number,
        role="tool",
        tool=tool,
        arguments=arguments,
        result="" if error else "done",
        error_type=failure.error_class if failure else None,
        error_message=error,
        call=call_id(tool, arguments),
        family=failure.family if failure else None,
        pattern=failure.class_ if failure else None,
        exact=failure.exact if failure else None,
        transient=failure.transient if failure else False,
    )


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
        trajectory = Trajectory(
            tenant="default",
            session=session,
            agent=agent,
            task=task,
            goal=f"solve {task}" if goal is None else goal,
            started=0.0,
            ended=0.0,
            ending="unknown",
            steps=tuple(step(number, *call) for number, call in enumerate(calls)),
            events=len(calls),
        )
        return Case(trajectory, source, failed)

    return make
