"""Measure whether what an earlier agent met is found when a session meets it again.

python -m benchmarks.foresight --data DIR
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.backtest.cases import cases_of
from benchmarks.command import command_app
from benchmarks.foresight.retrieval import retrieval
from fleetlore.cli.output import print_json
from fleetlore.retrieval.encoder import shared_encoder
from models.backtest.splitting import slices_of
from streams.commands.backtest import parts, say


def foresight(
    train: Annotated[Path | None, typer.Option(metavar="DIR", help="Logged sessions to learn from.")] = None,
    test: Annotated[Path | None, typer.Option(metavar="DIR", help="Other sessions, to predict.")] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Instead of both: one folder, split here.")] = None,
    share: Annotated[float, typer.Option(min=0.01, max=0.9, help="With --data: share held out.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Seed of the order of sessions, the hold-out and the fits.")] = 0,
) -> None:
    """Print one JSON document: `retrieval`, by source and slice."""
    known, unseen, _ = cases_of(*parts(train, test, data, share, None, seed), seed, say)
    print_json({"retrieval": retrieval(known, unseen, slices_of(known, unseen), shared_encoder())})


if __name__ == "__main__":
    command_app(foresight)()
