"""Measure two ideas that nothing in the product runs: `python -m benchmarks.foresight --data DIR`.

`retrieval`: is what an earlier agent met found when a session meets it again? `in_stream`: do earlier sessions of a new
agent or task make what is predicted of the next one better?
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.command import command_app
from benchmarks.foresight.earlier_sessions import pull_of
from benchmarks.foresight.in_stream import in_stream
from benchmarks.foresight.retrieval import retrieval
from fleetlore.cli.output import print_json
from fleetlore.retrieval.encoder import shared_encoder
from models.backtest.baseline import fit_tfidf
from models.backtest.cases import Case, slices_of
from models.backtest.foresight import foresee, prediction_scores
from models.judge.critic_fit import fit
from streams.commands.backtest import cases_of, parts


def foresight(
    train: Annotated[Path | None, typer.Option(metavar="DIR", help="Logged sessions to learn from.")] = None,
    test: Annotated[Path | None, typer.Option(metavar="DIR", help="Other sessions, to predict.")] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Instead of both: one folder, split here.")] = None,
    share: Annotated[float, typer.Option(min=0.01, max=0.9, help="With --data: share held out.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Seed of the order of sessions, the hold-out and the fits.")] = 0,
) -> None:
    """Print one JSON document: `retrieval` and `in_stream`, by source and slice."""
    known, unseen, _ = cases_of(*parts(train, test, data, share, None, seed), seed)
    print_json(measure(known, unseen, seed))


def measure(train: Sequence[Case], test: Sequence[Case], seed: int) -> dict[str, Any]:
    """Figures by source and slice; the trivial rival of `in_stream`, TF-IDF with logistic regression, beside it."""
    slices = slices_of(train, test)
    ended = [case for case in train if case.failed is not None]
    critic, left_out = fit([case.trajectory for case in ended], [bool(case.failed) for case in ended], seed)
    pull = pull_of(left_out)
    cold = foresee(test, critic.failure_probability)
    rival = foresee(test, fit_tfidf(train, seed))
    foreseen, calibration = prediction_scores(test, slices, in_stream(test, slices, cold, critic, pull))
    baseline, _ = prediction_scores(test, slices, in_stream(test, slices, rival, critic, pull))
    return {
        "retrieval": retrieval(train, test, slices, shared_encoder()),
        "in_stream": {"failure_auroc": foreseen, "tfidf_baseline": baseline, "calibration": calibration},
    }


if __name__ == "__main__":
    command_app(foresight)()
