"""Texts of errors are joined to patterns as labels say: those of common tools, of logged runs and of reports."""

from __future__ import annotations

import re

import pytest

from benchmarks.labelled import HELD_OUT, LOGS, Labelled, read_logged, read_texts
from benchmarks.patterns import BAR as PATTERNS_BAR
from benchmarks.patterns import ours, score
from benchmarks.reported import BAR, Pair, exact_text, pairs_of, read_reported, right_of, sentry
from tests.rows import for_each


def test_pairs_are_neighbours_in_a_label_and_texts_of_the_next_label() -> None:
    texts = [Labelled("t", label, None, text, "one") for label, text in (("a", "1"), ("a", "2"), ("b", "3"))]
    assert pairs_of(texts) == [Pair(0, 1, True), Pair(0, 2, False), Pair(2, 0, False)]
    assert right_of(pairs_of(texts), ["x", "y", "x"], same=True) == 0
    assert right_of(pairs_of(texts), ["x", "x", "y"], same=False) == 1


def test_the_reported_texts_are_many_and_each_has_its_thread() -> None:
    texts = read_reported()
    assert len(pairs_of(texts)) >= 600
    tools = {part: {each.tool for each in texts if each.part == part} for part in {each.part for each in texts}}
    assert len(tools) >= 5 and all(len(each) >= 10 for each in tools.values())
    assert sum(map(len, tools.values())) == len({each.tool for each in texts})  # no tool stands in two parts
    assert all(re.search(r" \| (?:[\w.-]+/[\w.-]+#\d+|https://\S+)$", each.label) for each in texts)


@for_each("part", "first", "second")
def test_the_reported_texts_in_view_reach_the_bar(part: str) -> None:
    texts = [each for each in read_reported() if each.part == part]
    pairs, found = pairs_of(texts), ours(texts)
    assert right_of(pairs, found, same=True) >= BAR
    assert right_of(pairs, found, same=False) >= BAR


def test_rivals_join_texts_by_their_own_rules() -> None:
    texts = [Labelled("t", "a", None, text, "one") for text in ("took 3 ms\nx\n1", "took 12 ms\nx\n2", "failed")]
    assert len(set(sentry(texts))) == 2
    assert len(set(exact_text(texts))) == 3


def test_texts_of_later_parts_are_not_joined_wrongly_and_most_of_one_failure_are_joined() -> None:
    for part, least in {"seventh": 0.7, "tenth": 0.8, "twelfth": 0.7}.items():
        texts = [each for each in read_reported() if each.part == part]
        pairs, found = pairs_of(texts), ours(texts)
        assert right_of(pairs, found, same=True) >= least, part
        assert right_of(pairs, found, same=False) >= BAR, part


def measured(texts: list[Labelled]) -> tuple[float, float]:
    return score([f"{each.tool}\t{each.label}" for each in texts], ours(texts))


def test_the_texts_of_common_tools_reach_the_bar() -> None:
    texts = read_texts()
    assert len(texts) >= 300
    assert len({each.part for each in texts}) == 5
    precision, recall = measured(texts)
    assert precision >= PATTERNS_BAR and recall >= PATTERNS_BAR


@pytest.mark.real_data
def test_the_texts_of_logged_runs_reach_the_bar() -> None:
    if not LOGS.is_dir():
        pytest.skip(f"no {LOGS}")
    texts = read_logged()
    assert len(texts) >= 150
    for part in (texts, [each for each in texts if each.part == HELD_OUT]):
        precision, recall = measured(part)
        assert precision >= PATTERNS_BAR and recall >= PATTERNS_BAR


def test_the_pairs_are_counted() -> None:
    assert score(["a", "a", "b"], ["1", "1", "2"]) == (1.0, 1.0)
    assert score(["a", "a", "b"], ["1", "1", "1"]) == (pytest.approx(1 / 3), 1.0)
    assert score(["a", "a", "b"], ["1", "2", "3"]) == (1.0, 0.0)
    assert score(["a", "b"], ["1", "2"]) == (1.0, 1.0)
