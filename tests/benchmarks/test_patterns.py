from pathlib import Path

import pytest

from benchmarks.labelled import HELD_OUT, LOGS, Labelled, read_logged, read_texts
from benchmarks.patterns import BAR, mistakes, ours, score


def measured(texts: list[Labelled]) -> tuple[float, float]:
    return score([f"{each.tool}\t{each.label}" for each in texts], ours(texts))


def test_the_pairs_are_counted() -> None:
    assert score(["a", "a", "b"], ["1", "1", "2"]) == (1.0, 1.0)
    assert score(["a", "a", "b"], ["1", "1", "1"]) == (pytest.approx(1 / 3), 1.0)
    assert score(["a", "a", "b"], ["1", "2", "3"]) == (1.0, 0.0)
    assert score(["a", "b"], ["1", "2"]) == (1.0, 1.0)


def test_a_mistake_is_shown_by_an_example() -> None:
    texts = [Labelled("t", label, None, text, "one") for label, text in (("a", "one"), ("a", "two"), ("b", "three"))]
    assert mistakes(texts, ["1", "2", "1"]) == ([("three", "one")], [("two", "one")])
    assert mistakes(texts, ["1", "1", "2"]) == ([], [])


def test_the_texts_of_common_tools_reach_the_bar() -> None:
    texts = read_texts()
    assert len(texts) >= 300
    assert len({each.part for each in texts}) == 5
    precision, recall = measured(texts)
    assert precision >= BAR and recall >= BAR, mistakes(texts, ours(texts))


def test_a_text_may_have_a_type_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text(
        "# x\n\n## one\n\n[sql] a b\nOSError | one\\ntwo\nthree | four\n\n## two\n\n[sh] c\nfive six | seven\n"
    )
    assert read_texts(path) == [
        Labelled("sql", "a b", "OSError", "one\ntwo", "one"),
        Labelled("sql", "a b", "three", "four", "one"),
        Labelled("sh", "c", None, "five six | seven", "two"),
    ]


@pytest.mark.real_data
def test_the_texts_of_logged_runs_reach_the_bar() -> None:
    if not LOGS.is_dir():
        pytest.skip(f"no {LOGS}")
    texts = read_logged()
    assert len(texts) >= 150
    for part in (texts, [each for each in texts if each.part == HELD_OUT]):
        precision, recall = measured(part)
        assert precision >= BAR and recall >= BAR
