"""Charts have axes with units, and their values on hover."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from jinja2 import Environment, FileSystemLoader

from models.uplift import Uplift, uplift
from streams.console import pages
from streams.console.blocks import points
from tests.streams.console.test_sessions import trials

TEMPLATES = FileSystemLoader(Path(pages.__file__).parent / "templates")
CHARTS: Any = Environment(loader=TEMPLATES, autoescape=True, trim_blocks=True, lstrip_blocks=True)
CHARTS = CHARTS.get_template("charts.html").module


def line_chart(values: Sequence[float], label: str, unit: str, seconds: float) -> str:
    return str(CHARTS.line(points(values, seconds), label, unit))


def effect_chart(of: Uplift) -> str:
    return str(CHARTS.effect(of))


def test_a_line_has_its_range_its_unit_and_a_value_for_each_point() -> None:
    chart = str(line_chart([0.0, 2.0, 4.0], "Events", "a second", 60.0))
    root = ElementTree.fromstring(chart)
    assert [each.text for each in root.iter("span")] == ["4.0 a second", "0", "2 min ago", "now"]
    assert [each.text for each in root.iter("title")] == [
        "0.0 a second, 2 min ago", "2.0 a second, 60 s ago", "4.0 a second, now"
    ]  # fmt: skip
    assert "4.0 a second now, at most 4.0" in chart
    assert line_chart([1.0], "Events", "a second", 60.0) == ""


def test_many_values_are_few_points() -> None:
    chart = str(line_chart([float(n) for n in range(100_000)], "Events", "a second", 5.0))
    assert len(re.findall("<title>", chart)) <= 160 and len(chart) < 40_000


def test_bars_say_what_they_measure_and_one_is_never_alone() -> None:
    root = ElementTree.fromstring(str(effect_chart(uplift(trials((200, 50), (20, 10))))))
    texts = [each.text for each in root.iter("text")]
    assert texts == ["with a hint", "withheld", "0 %", "25 %", "50 %", "75 %", "100 %"]
    assert [each.text for each in root.iter("title")] == [
        "with a hint: 25.0% of 200 calls failed", "withheld: 50.0% of 20 calls failed"
    ]  # fmt: skip
    widths = [float(each.attrib["width"]) for each in root.iter("rect")]
    assert widths == [50.0, 100.0]
    assert effect_chart(uplift(trials((200, 50), (0, 0)))) == ""


def test_a_hostile_name_stays_text() -> None:
    assert "<script>" not in line_chart([1.0, 2.0], "<script>", "<b>", 1.0)
