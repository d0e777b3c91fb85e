"""Fit the baseline of every prediction: TF-IDF of single words with logistic regression, on the same data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetlore.errors import ModelUnavailable
from fleetlore.wire.trajectory import Trajectory
from models.backtest.cases import Case
from models.backtest.foresight import FIRST_CALLS, Predictor, running
from models.backtest.scores import Floats

MAX_WORDS = 50_000


def fit_tfidf(train: Sequence[Case], seed: int) -> Predictor:
    """Fit one model for each number of calls on the training sessions that still ran then.

    Raises:
        ModelUnavailable: the extra `[backtest]` is not installed.
    """
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
    except ImportError as error:
        raise ModelUnavailable("the TF-IDF baseline needs: pip install 'fleetlore-server[backtest]'") from error
    models = {}
    for calls in FIRST_CALLS:
        places, beginnings = running(train, calls)
        failed = np.array([train[place].failed for place in places], bool)
        if not failed.any() or failed.all():
            continue
        models[calls] = make_pipeline(
            TfidfVectorizer(
                sublinear_tf=True, min_df=2 if len(places) > 100 else 1, max_features=MAX_WORDS, dtype=np.float32
            ),
            LogisticRegression(solver="liblinear", random_state=seed),
        ).fit([_text(each) for each in beginnings], failed)

    def predict(beginnings: Sequence[Trajectory], calls: int) -> Floats:
        if calls not in models:  # all of training ended alike: nothing tells one session from another
            return np.full(len(beginnings), 0.5)
        return np.asarray(models[calls].predict_proba([_text(each) for each in beginnings])[:, 1], np.float64)

    return predict


def _text(trajectory: Trajectory) -> str:
    steps = [
        f"{step.role} {step.tool} {step.arguments} {step.result} {step.error_message or ''}"
        for step in trajectory.steps
    ]
    return "\n".join([trajectory.goal, *steps])
