"""What the page knows of judged sessions, and whether it can tell that hints help."""

from __future__ import annotations

import re

import pytest

from streams.console.sessions import SeenSession, SeenSessions, agents_of, effect_of
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
    assert one.withheld == (1, 1), "the hint a was withheld first, whatever was shown later"
    assert one.shown == (2, 1), "b at a call that worked, c at one that failed"


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


def session(shown: tuple[int, int], withheld: tuple[int, int]) -> SeenSession:
    return SeenSession("s", "a", "", "", 0.0, 1.0, "success", 0, 0, shown, withheld)


@pytest.mark.parametrize(
    ("shown", "withheld", "answer"),
    [
        ((0, 0), (0, 0), "Not known yet: no call of these sessions was given a hint."),
        ((1000, 100), (100, 40), "Yes: 10% of the calls with a hint failed, and 40% of those"),
        ((1000, 400), (100, 10), "No, it harms: 40% of the calls with a hint failed, and 10% of those"),
        ((188, 30), (10, 2), "Not known yet: 16% of the calls with a hint failed, and 20% of those"),
        ((20_000, 4_000), (1_000, 200), "Hardly: 20% of the calls with a hint failed, and 20% of those"),
        (
            (100, 10),
            (0, 0),
            "Not known yet: no hint was withheld for comparison. To see a difference",
        ),
    ],
)
def test_the_answer_is_one_sentence_with_its_interval(
    shown: tuple[int, int], withheld: tuple[int, int], answer: str
) -> None:
    effect = effect_of([session(shown, withheld)])
    assert effect.answer.startswith(answer)
    if shown[0] and withheld[0]:
        assert re.search(r"95 % interval of the difference: -?\d+ to -?\d+ points", effect.answer)


def test_as_many_sessions_as_are_said_to_be_needed_are_enough() -> None:
    """With 5 % held out, a difference of ten points is seen after about the number of sessions that is named."""
    few = [session((19, 4), (1, 0))] * 10
    (more,) = re.findall(r"takes about ([\d,]+) more sessions", effect_of(few).answer)
    enough = [session((190, 28), (10, 3))] * ((10 + int(more.replace(",", ""))) // 10 + 1)
    assert effect_of(enough).answer.startswith("Yes")
