"""Learning the retrieval adapter, and the gate that ranks the ways out of sessions to come."""

from collections.abc import Sequence

import pytest

from fleetlore.retrieval.adapter import RetrievalAdapter
from fleetlore.retrieval.encoder import shared_encoder
from models.adapter.contrastive import TrainingConfig, train
from models.adapter.gate import LEAST, judge_retrieval
from models.adapter.pairs import Case, cases_of
from tests.models.adapter.inflected import sessions

ENCODER = shared_encoder()
SHORT = TrainingConfig(steps=60)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [case for session in sessions(0, 160) for case in cases_of(session)]


def learn(cases: Sequence[Case]) -> RetrievalAdapter | None:
    trained = train(cases, ENCODER, SHORT)
    return trained and trained.adapter(ENCODER.dimensions)


def untrained(cases: Sequence[Case]) -> RetrievalAdapter | None:
    trained = train(cases, ENCODER, TrainingConfig(steps=0))
    return trained and trained.adapter(ENCODER.dimensions)


def test_an_adapter_that_ranks_the_next_sessions_better_than_words_passes(cases: list[Case]) -> None:
    report = judge_retrieval(cases, learn, ENCODER)
    assert report.passed, report
    assert report.figures["mrr"] > report.figures["mrr_words"] + 0.1


def test_the_same_cases_give_the_same_bytes(cases: list[Case]) -> None:
    some = cases[:60]
    first, again = (train(some, ENCODER, TrainingConfig(steps=5)) for _ in range(2))
    other = train(some, ENCODER, TrainingConfig(steps=5, seed=1))
    assert first is not None and again is not None and other is not None
    assert first.weights == again.weights != other.weights
    assert 30_000 < len(first.weights) < 40_000


def test_few_cases_decide_nothing(cases: list[Case]) -> None:
    report = judge_retrieval(cases[:LEAST], learn, ENCODER)
    assert (report.reason, report.passed) == ("too_few", False)


def test_cases_without_an_answer_teach_nothing(cases: list[Case]) -> None:
    assert train(cases[:1], ENCODER) is None and train([], ENCODER) is None
    assert judge_retrieval(cases[:1], learn, ENCODER).reason == "too_few"


def test_an_adapter_that_forgets_words_is_refused(cases: list[Case]) -> None:
    """Shuffled answers hold noise only."""
    dealt = [
        case._replace(answer=other.answer, words=other.words, lacked=other.lacked)
        for case, other in zip(cases, [*cases[1:], cases[0]], strict=True)
    ]
    report = judge_retrieval(dealt, learn, ENCODER)
    assert report.reason == "no_gain", report


def test_a_candidate_that_ranks_worse_than_the_published_version_is_refused(cases: list[Case]) -> None:
    published, ended = learn(cases), [float(number) for number in range(len(cases))]
    report = judge_retrieval(cases, untrained, ENCODER, published, -1.0, ended)
    assert report.reason in ("worse_than_published", "no_gain") and not report.passed
    # Sessions that the published version has learned cannot test it.
    assert "mrr_published" not in judge_retrieval(cases, learn, ENCODER, published, 1e9, ended).figures
