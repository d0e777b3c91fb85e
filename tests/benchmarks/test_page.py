from pathlib import Path

from benchmarks import page
from benchmarks.__main__ import NAMES
from benchmarks.report import Report, Row

TEXT = "before\n\n<!-- table -->\nold\n<!-- end -->\n\nafter\n"
RATE = Report(
    name="rate",
    figure=0.5,
    bar=1000.0,
    unit="events/s",
    peers={},
    rows=(Row(name="ours", figure=12345.6, unit="events/s"),),
    also=(Report(name="lag", figure=0.2, bar=0.5, unit="s", peers={}, higher_is_better=False),),
)


def test_the_table_shows_each_report_and_the_text_around_it_stays(tmp_path: Path) -> None:
    RATE.write_csv(tmp_path, Row(name="machine", figure=2, unit="cores"))
    text = page.render(TEXT, ("rate", "other"), tmp_path)
    assert "| `rate` | rate | 0.5 events/s | 1,000: **missed** | 0.001 × bar |\n" in text
    assert "| `rate` | lag | 0.2 s | 0.5: met | 0.400 × bar |\n" in text
    assert "| `other` | not measured yet | | | |\n" in text
    assert "old" not in text and "ours" not in text
    assert text.startswith("before\n") and text.endswith("<!-- end -->\n\nafter\n")
    assert page.render(text, ("rate", "other"), tmp_path) == text


def test_the_page_is_up_to_date() -> None:
    text = page.PAGE.read_text()
    assert text.count("<!-- table -->") == 1
    assert page.render(text, NAMES) == text, "run `python -m benchmarks.page`"
