"""What the page knows of judged sessions, whether hints help, and the charts of it."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from jinja2 import Environment, FileSystemLoader

from fleetlore.fingerprint.fingerprint import pattern_id
from fleetlore.fingerprint.names import kind_of
from models.uplift import Trial, uplift
from streams.console import pages
from streams.console.blocks import points
from streams.console.sessions import SeenSession, SeenSessions, agents_of
from tests.build import call, judgment
from tests.rows import for_each


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


def test_a_hint_after_a_failure_has_the_source_that_follows_from_it() -> None:
    first = call("sql", "SELECT price FROM cars", error="no such column: price")
    assert first.pattern is not None
    ids = {
        pattern_id("look-up", "sql", kind_of(first).kind): "looked up",
        pattern_id("proposed", first.pattern): "proposed",
        "other": "",
    }
    told = [call("sql", advice=tuple(ids)), call("sql", withheld=tuple(ids))]
    seen = SeenSessions()
    seen.take(judgment(first, *told, session="a").to_json())
    seen.take(judgment(*told, session="b").to_json())
    after, without = sorted(seen.newest(0, nobody), key=lambda each: each.id)
    assert {each.hint: each.source for each in after.trials} == ids
    assert {each.source for each in without.trials} == {""}


def trials(shown: tuple[int, int], withheld: tuple[int, int]) -> list[Trial]:
    """One session for each call: (calls, failed calls)."""
    return [
        Trial(f"{is_shown}-{number}", "h", "sql", "", is_shown, number < failed, 5, None)
        for is_shown, (calls, failed) in ((True, shown), (False, withheld))
        for number in range(calls)
    ]


@for_each(
    "shown, withheld, answer",
    ((0, 0), (0, 0), "Not known yet: no call of these sessions was given a hint."),
    ((1000, 100), (100, 40), "Yes: 10% of the calls with a hint failed, and 40% of those"),
    ((1000, 400), (100, 10), "No, it harms: 40% of the calls with a hint failed, and 10% of those"),
    ((188, 30), (10, 2), "Not known yet: 16% of the calls with a hint failed, and 20% of those"),
    ((20_000, 4_000), (1_000, 200), "Hardly: 20% of the calls with a hint failed, and 20% of those"),
    ((100, 10), (0, 0), "Not known yet: no hint was withheld for comparison. To see a difference"),
)
def test_the_answer_is_one_sentence_with_its_interval(
    shown: tuple[int, int], withheld: tuple[int, int], answer: str
) -> None:
    effect = uplift(trials(shown, withheld))
    assert effect.answer.startswith(answer)
    if shown[0] and withheld[0]:
        assert re.search(r"95 % interval of the difference: -?\d+ to -?\d+ points", effect.answer)


def test_sessions_with_long_names_fill_no_more_memory_than_others() -> None:
    """An agent chooses its name, and those of its sessions and tasks."""
    seen = SeenSessions()
    for number in range(100):
        long = f"{number}".ljust(50_000, "\U0001f600")
        seen.take(judgment(call("sql"), session=long, agent=long, task=long, ended=float(number)).to_json())
    kept = seen.newest(0, nobody)
    assert kept[0].id.startswith("99") and len(kept) * 600_000 < 40e6


TEMPLATES = FileSystemLoader(Path(pages.__file__).parent / "templates")
CHARTS: Any = Environment(loader=TEMPLATES, autoescape=True, trim_blocks=True, lstrip_blocks=True)
CHARTS = CHARTS.get_template("charts.html").module


def line_chart(values: Sequence[float], label: str, unit: str, seconds: float) -> str:
    return str(CHARTS.line(points(values, seconds), label, unit))


def test_a_line_has_its_range_its_unit_and_a_value_for_each_point() -> None:
    chart = line_chart([0.0, 2.0, 4.0], "Events", "a second", 60.0)
    root = ElementTree.fromstring(chart)
    assert [each.text for each in root.iter("span")] == ["4.0 a second", "0", "2 min ago", "now"]
    assert [each.text for each in root.iter("title")] == [
        "0.0 a second, 2 min ago", "2.0 a second, 60 s ago", "4.0 a second, now"
    ]  # fmt: skip
    assert "4.0 a second now, at most 4.0" in chart
    assert line_chart([1.0], "Events", "a second", 60.0) == ""
    many = line_chart([float(n) for n in range(100_000)], "<script>", "<b>", 5.0)
    assert many.count("<title>") <= 160 and len(many) < 40_000 and "<script>" not in many


def test_bars_say_what_they_measure_and_one_is_never_alone() -> None:
    root = ElementTree.fromstring(str(CHARTS.effect(uplift(trials((200, 50), (20, 10))))))
    texts = [each.text for each in root.iter("text")]
    assert texts == ["with a hint", "withheld", "0 %", "25 %", "50 %", "75 %", "100 %"]
    assert [each.text for each in root.iter("title")] == [
        "with a hint: 25.0% of 200 calls failed", "withheld: 50.0% of 20 calls failed"
    ]  # fmt: skip
    widths = [float(each.attrib["width"]) for each in root.iter("rect")]
    assert widths == [50.0, 100.0]
    assert str(CHARTS.effect(uplift(trials((200, 50), (0, 0))))) == ""
