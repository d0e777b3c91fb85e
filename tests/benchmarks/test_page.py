from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks import page
from benchmarks.__main__ import NAMES
from benchmarks.report import Report, Row

TEXT = "before\n\n<!-- table: rate -->\nold\n<!-- end -->\n\nbetween\n\n<!-- table: summary -->\n<!-- end -->\nafter\n"
RATE = Report(
    name="rate",
    figure=0.5,
    bar=1000.0,
    unit="events/s",
    peers={},
    rows=(Row(name="ours", figure=12345.6, unit="events/s", note="a | b"), Row(name="  part", figure=1.25, unit="µs")),
    also=(Report(name="lag", figure=0.2, bar=0.5, unit="s", peers={}, higher_is_better=False),),
    note="the disk",
)


def test_a_table_shows_what_was_measured_and_the_text_around_it_stays(tmp_path: Path) -> None:
    RATE.write_csv(tmp_path, Row(name="machine", figure=2, unit="cores"))
    text = page.render(TEXT, tmp_path)
    assert text.startswith(
        "before\n\n<!-- table: rate -->\n\n**rate: 0.5 events/s** against a bar of 1,000: **missed**"
    )
    assert "The disk." in text
    assert "| ours | 12,346 | events/s | a \\| b |\n| &nbsp;&nbsp;part | 1.25 | µs |  |\n" in text
    assert "**lag: 0.2 s** against a bar of 0.5: met" in text
    assert "| lag | 0.2 s | 0.5 | yes | 0.400 × bar |" in text
    assert "old" not in text and "\nbetween\n" in text and text.endswith("<!-- end -->\nafter\n")
    assert page.render(text, tmp_path) == text


def test_a_long_table_is_folded_and_an_empty_one_is_left_out(tmp_path: Path) -> None:
    long = replace(RATE, rows=tuple(Row(name=f"row {n}", figure=n, unit="s") for n in range(page.UNFOLDED_ROWS)))
    long.write_csv(tmp_path, Row(name="machine", figure=2, unit="cores"))
    text = page.render(TEXT, tmp_path)
    folded = text[text.index("<details>") : text.index("</details>")]
    assert folded.startswith(f"<details><summary>{len(long.rows) + 1} rows</summary>\n\n|  | figure |")
    assert folded.count("| row ") == len(long.rows)
    assert "**rate:" in text.partition("<details>")[0], "the headline stands open"
    assert text.count("|  | figure |") == 1, "the report beside it has no rows"


def test_what_was_not_measured_is_said_to_be_so(tmp_path: Path) -> None:
    assert "Not measured yet: `python -m benchmarks rate`." in page.render(TEXT, tmp_path)


def test_the_pages_have_every_benchmark_once_and_are_up_to_date() -> None:
    texts = [path.read_text() for path in page.PAGES]
    for name in NAMES:
        assert "".join(texts).count(f"<!-- table: {name} -->") == 1, name
    for text in texts:
        assert page.render(text) == text, "run `python -m benchmarks.page`"
