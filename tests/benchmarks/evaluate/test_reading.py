"""How an agent reads what its memory says of past calls, at the level of names."""

import pytest

from benchmarks.evaluate.reading import LEAST, factors, stories
from benchmarks.evaluate.recall import Note, Recall

GOOD = "SELECT name FROM singer"
BAD = "SELECT name FROM singers"
RAW = """sql(SELECT name FROM singers) -> error Table 'concert.singers' doesn't exist
sql(SELECT age FROM singer) -> ok"""


def test_a_stated_chance_scales_the_weight_and_never_to_nothing() -> None:
    assert factors([GOOD, BAD], Recall(risks=(0.25, 1.0))).tolist() == [0.75, LEAST]


def test_a_name_that_an_error_named_speaks_against_the_calls_that_hold_it() -> None:
    good, bad = factors([GOOD, "SELECT x FROM singers"], Recall([Note(RAW)]))
    assert bad == pytest.approx(0.1)
    assert good > 1  # a note says that singer works


def test_the_same_call_that_failed_is_avoided_and_one_that_solved_is_preferred() -> None:
    solved = "- How to: names\n  What worked:\n  1. sql(SHOW TABLES)\n  2. sql(SELECT name FROM singer)"
    first, last, failed = factors(["SHOW TABLES", GOOD, BAD], Recall([Note(solved), Note(RAW)]))
    assert last == pytest.approx(40)
    assert first < 3
    assert failed == pytest.approx(0.01)


def test_the_words_of_a_call_that_failed_are_not_held_against_others() -> None:
    (story,) = stories("- Tried in vain: sql(SELECT 'age' FROM singer)")
    assert not story.fails
    assert not story.works
    assert story.failed == {"select 'age' from singer"}


def test_a_heading_gives_its_verdict_to_what_stands_under_it() -> None:
    (story,) = stories("- Only in a session that failed:\n  - x(a = b)\n  What worked:\n  1. y(c = d)")
    assert story.failed == {"a = b"}
    assert story.solved == "c = d"


# --- tips are read by their parts ---


def test_a_line_without_a_verdict_is_passed_over() -> None:
    assert factors([GOOD], Recall([Note("- Goal: the name of each singer")])).tolist() == [1]
