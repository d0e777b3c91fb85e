"""Compare contrastive objectives of the policy adapter on the same pairs of logged sessions.

    python -m benchmarks.policy --data DIR --model DIR --objective margin --out rows.jsonl

Pairs are those that the trainer makes (`models.policy.pairs`), at a quorum of two. An adapter learns the older ones and
is asked about the newer ones, as by the trainer's gate. The file gets a row for each objective, and a run skips
the rows that are there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import orjson
import torch
import typer
from torch import Tensor
from torch.nn import functional

from fleetlore.transcripts.read import read_sessions
from fleetlore.wire.trajectory import Judgment
from models.judge import JudgeChain
from models.policy.gate import judge_policy, split
from models.policy.learn import LanguageModel, Training
from models.policy.objective import Likelihoods, margin
from models.policy.pairs import Pair, preference_pairs
from streams.offline.memory_pipeline import run_logs

QUORUM = 2
# The value of the paper and of TRL.
_DPO_SHARPNESS = 0.1


def imitation(pair: Likelihoods) -> Tensor:
    """Plain imitation of the call that worked."""
    return -pair.worked / pair.worked_tokens


def dpo(pair: Likelihoods) -> Tensor:
    """DPO (Rafailov et al. 2023)."""
    worked, failed = pair.base()
    gained = (pair.worked - worked) - (pair.failed - failed)
    loss: Tensor = -functional.logsigmoid(_DPO_SHARPNESS * gained)
    return loss


OBJECTIVES = {"margin": margin, "dpo": dpo, "imitation": imitation}


def pairs_of_logs(data: Path, most_sessions: int, tool: str) -> list[Pair]:
    """Judge the sessions of a log in one drawn order and return their pairs."""
    logged = [each for each in read_sessions(data) if not tool or each.task.startswith(tool)]
    logged = sorted(logged, key=lambda each: (each.task, each.session))[:most_sessions]
    run = asyncio.run(run_logs(logged, seed=0, learn=False))
    judge = JudgeChain()
    judgments = [Judgment(trajectory=each, verdict=judge.judge(each)) for each in run.trajectories]
    return preference_pairs(judgments, QUORUM)


def compared(model: Path, objective: str, pairs: Sequence[Pair], updates: int, most_later: int) -> dict[str, Any]:
    """Learn the older pairs by an objective; return its figures on the newer ones."""
    began = time.process_time()
    older, later = split(pairs)
    later = later[:: max(1, len(later) // most_later)]
    language_model = LanguageModel(model, Training(updates=updates, objective=OBJECTIVES[objective], most_tokens=224))
    base, before = language_model.margins(later), language_model.perplexity()
    language_model.learn(older)
    candidate, after = language_model.margins(later), language_model.perplexity()
    report = judge_policy(later, base, candidate, None, (before, after))
    return {
        "objective": objective,
        "updates": updates,
        "pairs": len(pairs),
        "right_base": _right(base),
        "right": _right(candidate),
        "gate": report.reason,
        "cpu_seconds": round(time.process_time() - began),
        **{name: round(value, 4) for name, value in report.figures.items()},
    }


def _right(margins: Sequence[float]) -> float:
    """Share of the pairs in which the call that worked is the likelier one."""
    return round(sum(each > 0 for each in margins) / max(1, len(margins)), 3)


def main(
    data: Annotated[Path, typer.Option(help="Folder of logged sessions.")],
    model: Annotated[Path, typer.Option(help="Folder of a language model.")],
    out: Annotated[Path, typer.Option(help="File of rows.")],
    objective: Annotated[str, typer.Option(help=f"One of {', '.join(OBJECTIVES)}.")] = "margin",
    updates: int = 100,
    most_sessions: Annotated[int, typer.Option(help="Sessions of the log, task by task.")] = 600,
    most_later: Annotated[int, typer.Option(help="Later pairs that are asked about.")] = 60,
    tool: Annotated[str, typer.Option(help="Beginning of the tasks' names.")] = "sql",
) -> None:
    """Measure one objective."""
    rows = [orjson.loads(line) for line in out.read_bytes().splitlines()] if out.exists() else []
    if any((row["objective"], row["updates"]) == (objective, updates) for row in rows):
        return
    torch.set_num_threads(1)
    row = compared(model, objective, pairs_of_logs(data, most_sessions, tool), updates, most_later)
    with out.open("ab") as file:
        file.write(orjson.dumps(row) + b"\n")
    typer.echo(orjson.dumps(row, option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    typer.run(main)
