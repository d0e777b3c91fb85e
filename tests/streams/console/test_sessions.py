"""What the page knows of judged sessions, and whether it can tell that hints help."""

from __future__ import annotations

import re

import pytest

from models.uplift import Trial, uplift
from streams.console.sessions import SeenSession, SeenSessions, agents_of
from tests.build import call, judgment


def nobody(_: SeenSession) -> bool:
    return False


def test_the_first_call_of_each_draw_counts() -> None:
    seen = SeenSessions()
    steps = (
        call("sql", error="no such table", withheld=("a",)),
        call("sql", advice=("b",)),
        call("sql", error="no such table", advice=("a", "b", "c")),
    )
    seen.take(judgment(*steps, session="one", agent="ann", label="failure", ended=5.0).to_json())
    (one,) = seen.newest(0, nobody)
    assert (one.id, one.agent, one.label, one.calls, one.failed) == ("one", "ann", "failure", 3, 2)
    drawn = {each.hint: (each.shown, each.failed, each.success) for each in one.trials}
    assert drawn["a"] == (False, True, False), "the hint a was withheld first, whatever was shown later"
    assert (drawn["b"], drawn["c"]) == ((True, False, False), (True, True, False))
    assert one.hints == 2


def test_a_session_that_is_judged_again_is_replaced_and_an_erased_one_is_left_out() -> None:
    seen = SeenSessions()
    for label in ("failure", "success"):
        seen.take(judgment(call("sql"), session="one", label=label, ended=5.0).to_json())
    seen.take(b"[]")
    seen.take(b"no json")
    seen.take(judgment(call("sql"), session="two", ended=6.0, part=1).to_json())
    assert [(each.id, each.label) for each in seen.newest(0, nobody)] == [("two#1", "success"), ("one", "success")]
    assert [each.id for each in seen.newest(1, lambda each: each.id == "one")] == ["two#1"]
    (agent,) = agents_of(seen.newest(0, nobody))
    assert (agent.sessions, agent.failed_sessions, agent.calls, agent.ended) == (2, 0, 2, 6.0)


def trials(shown: tuple[int, int], withheld: tuple[int, int]) -> list[Trial]:
    """One session for each call: (calls, failed calls)."""
    return [
        Trial(f"{is_shown}-{number}", "h", "sql", "", is_shown, number < failed, 5, None)
        for is_shown, (calls, failed) in ((True, shown), (False, withheld))
        for number in range(calls)
    ]


@pytest.mark.parametrize(
    ("shown", "withheld", "answer"),
    [
        ((0, 0), (0, 0), "Not known yet: no call of these sessions was given a hint."),
        ((1000, 100), (100, 40), "Yes: 10% of the calls with a hint failed, and 40% of those"),
        ((1000, 400), (100, 10), "No, it harms: 40% of the calls with a hint failed, and 10% of those"),
        ((188, 30), (10, 2), "Not known yet: 16% of the calls with a hint failed, and 20% of those"),
        ((20_000, 4_000), (1_000, 200), "Hardly: 20% of the calls with a hint failed, and 20% of those"),
        ((100, 10), (0, 0), "Not known yet: no hint was withheld for comparison. To see a difference"),
    ],
)
def test_the_answer_is_one_sentence_with_its_interval(
    shown: tuple[int, int], withheld: tuple[int, int], answer: str
) -> None:
    effect = uplift(trials(shown, withheld))
    assert effect.answer.startswith(answer)
    if shown[0] and withheld[0]:
        assert re.search(r"95 % interval of the difference: -?\d+ to -?\d+ points", effect.answer)


def test_as_many_sessions_as_are_said_to_be_needed_are_enough() -> None:
    """With 5 % held out, a difference of ten points is seen after about the number of sessions that is named."""
    few = uplift(trials((190, 40), (10, 0)))
    assert f"takes about {few.needed:,} more sessions" in few.answer
    times = (200 + few.needed) // 200 + 1
    assert uplift(trials((190 * times, 28 * times), (10 * times, 3 * times))).answer.startswith("Yes")


def test_sessions_with_long_names_fill_no_more_memory_than_others() -> None:
    """An agent chooses its name, and those of its sessions and tasks."""
    seen = SeenSessions()
    for number in range(100):
        long = f"{number}".ljust(50_000, "\U0001f600")
        seen.take(judgment(call("sql"), session=long, agent=long, task=long, ended=float(number)).to_json())
    kept = seen.newest(0, nobody)
    assert kept[0].id.startswith("99") and len(kept) * 600_000 < 40e6
