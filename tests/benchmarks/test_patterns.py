import pytest

from benchmarks.labelled import HELD_OUT, LOGS, Labelled, read_logged, read_texts
from benchmarks.patterns import BAR, ours, score


def measured(texts: list[Labelled]) -> tuple[float, float]:
    return score([f"{each.tool}\t{each.label}" for each in texts], ours(texts))


def test_the_texts_of_common_tools_reach_the_bar() -> None:
    texts = read_texts()
    assert len(texts) >= 300
    assert len({each.part for each in texts}) == 5
    precision, recall = measured(texts)
    assert precision >= BAR and recall >= BAR


@pytest.mark.real_data
def test_the_texts_of_logged_runs_reach_the_bar() -> None:
    if not LOGS.is_dir():
        pytest.skip(f"no {LOGS}")
    texts = read_logged()
    assert len(texts) >= 150
    for part in (texts, [each for each in texts if each.part == HELD_OUT]):
        precision, recall = measured(part)
        assert precision >= BAR and recall >= BAR


def test_the_pairs_are_counted() -> None:
    assert score(["a", "a", "b"], ["1", "1", "2"]) == (1.0, 1.0)
    assert score(["a", "a", "b"], ["1", "1", "1"]) == (pytest.approx(1 / 3), 1.0)
    assert score(["a", "a", "b"], ["1", "2", "3"]) == (1.0, 0.0)
    assert score(["a", "b"], ["1", "2"]) == (1.0, 1.0)
