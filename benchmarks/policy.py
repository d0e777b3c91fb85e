"""Compare contrastive objectives of the policy adapter on one log.

    python -m benchmarks.policy --data DIR --model DIR --objective margin --out rows.jsonl

The trainer's own code makes the pairs (`models.policy.pairs`), at a quorum of two. An adapter learns the older ones
and is asked about the newer ones, as by the trainer's gate. The rival is the model alone, which reads the advice that
an agent would get there. Each row is written once it is measured, and a run skips rows that are there. Intervals draw
tasks. No call is executed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import orjson
import torch
import typer
from torch import Tensor
from torch.nn import functional

from benchmarks.evaluate.figures import interval
from benchmarks.evaluate.fleet import Fleet
from benchmarks.evaluate.places import at_places
from benchmarks.evaluate.world import LoggedTask
from benchmarks.living.past import pinned
from fleetlore.transcripts.read import read_sessions
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire.trajectory import Judgment, Trajectory
from models.judge import JudgeChain
from models.policy.gate import judge_policy, split
from models.policy.learn import LanguageModel, Likelihoods, Objective, Training, margin
from models.policy.pairs import Pair, preference_pairs
from streams.offline.memory_pipeline import run_logs

QUORUM = 2
# The value of the paper and of TRL.
_DPO_SHARPNESS = 0.1
# Tokens of a prompt with advice and its longer call: twice those of a pair, since advice is as long as a session.
_TEXT_TOKENS = 1024


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


class Log(NamedTuple):
    """Sessions as they were logged, in the order in which they are played, and as the first stage closes them."""

    logged: list[LoggedSession]
    trajectories: list[Trajectory]

    def pairs(self) -> list[Pair]:
        judge = JudgeChain()
        return preference_pairs(
            [Judgment(trajectory=each, verdict=judge.judge(each)) for each in self.trajectories], QUORUM
        )


def log_of(data: Path, tool: str) -> Log:
    """The sessions of a log whose tasks begin so, in one drawn order."""
    logged = at_places([each for each in read_sessions(data) if not tool or each.task.startswith(tool)])
    trajectories = asyncio.run(run_logs(logged, seed=0, learn=False)).trajectories
    by_session = {each.session: each for each in logged}
    return Log([by_session[each.session] for each in trajectories], trajectories)


def with_text(log: Log, older: Sequence[Pair], later: Sequence[Pair]) -> list[Pair]:
    """The later pairs, whose prompts end with what fleetlore says there to an agent that has not lived through them.

    Before the call that fails an agent reads the line about this very call. After it, it reads the ways out.
    """
    by_id = {each.id: each for each in log.trajectories}
    asked, end = {pair.sessions[0] for pair in later}, max(pair.ended for pair in older)
    past = [
        logged
        for logged, each in zip(log.logged, log.trajectories, strict=True)
        if each.ended <= end and each.id not in asked
    ]
    fleet = Fleet(lore=True)
    asyncio.run(fleet.learn(past))
    return [_with_text(fleet, by_id[pair.sessions[0]], pair, str(number)) for number, pair in enumerate(later)]


def _with_text(fleet: Fleet, met: Trajectory, pair: Pair, id: str) -> Pair:
    made = sum("tool_calls" in message for message in pair.prompt)
    task = LoggedTask(met.task, met.goal, pair.tool, met.place)
    with fleet.session(task, f"asks/{id}", model=True) as session:
        texts, failed = [session.brief(tools=[pair.tool]).text], False
        for call in met.calls[:made]:
            with session.action(call.tool, call.arguments) as action:
                if failed := call.failed:
                    action.fail(call.error_type or "", call.error_message or "")
                else:
                    action.result = call.result
        if failed:
            texts.append(session.advise().text)
        if made < len(met.calls):
            texts.append(session.advise(pair.tool, met.calls[made].arguments).text)
    read = pinned("\n".join(dict.fromkeys(filter(None, texts))))
    return pair._replace(prompt=[*pair.prompt, {"role": "user", "content": read}]) if read else pair


def advice(fleet: Fleet, state: Trajectory) -> str:
    """Return the advice to a newcomer after the failed first call of a session."""
    call, task = state.calls[0], LoggedTask(state.task, state.goal, state.calls[0].tool, state.place)
    with fleet.session(task, f"asks/{state.id}", model=True) as session:
        with session.action(call.tool, call.arguments) as action:
            action.fail(call.error_type or "", call.error_message or "")
        return pinned(session.advise().text)


class Scored(NamedTuple):
    """An arm at the later pairs: log p of both calls of each, and the perplexity of the unrelated text."""

    worked: list[float]
    failed: list[float]
    perplexity: float

    @property
    def margins(self) -> list[float]:
        return [worked - failed for worked, failed in zip(self.worked, self.failed, strict=True)]


class Asked(LanguageModel):
    """A model that also says which of the two likelihoods changed."""

    def score(self, pairs: Sequence[Pair], most_tokens: int = 0) -> Scored:
        """Score pairs, within these tokens or the training's: a prompt that is cut at its beginning loses its goal."""
        learning, perplexity = self.training, self.perplexity()
        self.training = learning._replace(most_tokens=most_tokens or learning.most_tokens)
        found = [self._likelihoods(self._encoded(pair), gradient=False) for pair in pairs]
        self.training = learning
        return Scored([float(each) for each, _ in found], [float(each) for _, each in found], perplexity)


def watched(objective: Objective, every_pairs: int, report: Callable[[int], None]) -> Objective:
    """The objective, which reports the number of pairs learned each time after so many."""
    asked = 0

    def loss(pair: Likelihoods) -> Tensor:
        nonlocal asked
        if asked and asked % every_pairs == 0:
            report(asked)
        asked += 1
        return objective(pair)

    return loss


class Rows:
    """A file of rows, by arm and number of updates."""

    def __init__(self, path: Path, later: Sequence[Pair], known: set[str]) -> None:
        self._path = path
        self._later = later
        self._known = [pair.task in known for pair in later]
        kept = [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
        self.kept = {(row["arm"], row["updates"]): row for row in kept}

    def alone(self) -> Scored:
        row = self.kept["alone", 0]
        return Scored(row["worked"], row["failed"], row["perplexity"])

    def add(self, arm: str, updates: int, scored: Scored) -> None:
        """Write a row; all but the model alone are compared with it."""
        base = scored if arm == "alone" else self.alone()
        tasks = [pair.task for pair in self._later]
        right, right_base = _right(scored.margins), _right(base.margins)
        row: dict[str, Any] = {"arm": arm, "updates": updates, "pairs_later": len(tasks), "tasks": len(set(tasks))}
        row |= {"right": interval(tasks, right), "perplexity": scored.perplexity, "perplexity_change": 0.0}
        if arm != "alone":
            report = judge_policy(self._later, base.margins, scored.margins, None, (base.perplexity, scored.perplexity))
            row |= {"gate": report.reason, **report.figures}
            gains = _minus(scored.margins, base.margins)
            row |= {
                "right_gained": interval(tasks, _minus(right, right_base)),
                "margin_gained": interval(tasks, gains),
                "worked_gained": interval(tasks, _minus(scored.worked, base.worked)),
                "failed_gained": interval(tasks, _minus(scored.failed, base.failed)),
            }
            for name, known in (("known_tasks", True), ("new_tasks", False)):
                kept = [number for number, each in enumerate(self._known) if each is known]
                if kept:
                    of_kind = [tasks[number] for number in kept]
                    row[name] = {
                        "pairs": len(kept),
                        "tasks": len(set(of_kind)),
                        "right": interval(of_kind, [right[number] for number in kept]),
                        "right_base": interval(of_kind, [right_base[number] for number in kept]),
                        "margin_gained": interval(of_kind, [gains[number] for number in kept]),
                    }
        row |= {"worked": scored.worked, "failed": scored.failed, "cpu_seconds": round(time.process_time())}
        with self._path.open("ab") as file:
            file.write(orjson.dumps(row) + b"\n")
        self.kept[arm, updates] = row
        typer.echo(orjson.dumps({key: row[key] for key in row if key not in ("worked", "failed")}).decode())


def _minus(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [a - b for a, b in zip(ours, theirs, strict=True)]


def _right(margins: Sequence[float]) -> list[float]:
    """1 for each pair in which the call that worked is the likelier one."""
    return [float(each > 0) for each in margins]


def compare(
    model: Path,
    objective: str,
    older: Sequence[Pair],
    later: Sequence[Pair],
    texts: Sequence[Pair],
    rows: Rows,
    updates: int,
    every: int,
) -> None:
    """Write the rows of the model alone, with text, and while it learns the older pairs by an objective."""
    training = Training(updates=updates)

    def report(pairs: int) -> None:
        rows.add(objective, pairs // training.batch_pairs, asked.score(later))

    learning = watched(OBJECTIVES[objective], every * training.batch_pairs, report)
    asked = Asked(model, training._replace(objective=learning))
    for arm, pairs in (("alone", later), ("text", texts)):
        if pairs and (arm, 0) not in rows.kept:
            rows.add(arm, 0, asked.score(pairs, _TEXT_TOKENS if arm == "text" else 0))
    if (objective, updates) in rows.kept:
        return
    asked.learn(older)
    report(updates * training.batch_pairs)
    if texts:
        rows.add(f"{objective} and text", updates, asked.score(texts, _TEXT_TOKENS))


def main(
    data: Annotated[Path, typer.Option(help="Folder of logged sessions.")],
    model: Annotated[Path, typer.Option(help="Folder of a language model.")],
    out: Annotated[Path, typer.Option(help="File of rows.")],
    objective: Annotated[str, typer.Option(help=f"One of {', '.join(OBJECTIVES)}.")] = "margin",
    updates: int = 100,
    every: Annotated[int, typer.Option(help="Updates after which there is a row.")] = 25,
    most_later: Annotated[int, typer.Option(help="Later pairs that are asked about, evenly spaced.")] = 60,
    tool: Annotated[str, typer.Option(help="Beginning of the tasks' names.")] = "sql",
) -> None:
    """Measure one objective."""
    torch.set_num_threads(1)
    log = log_of(data, tool)
    older, later = split(log.pairs())
    later = later[:: -(-len(later) // most_later)]
    rows = Rows(out, later, {pair.task for pair in older})
    compare(model, objective, older, later, with_text(log, older, later), rows, updates, every)


if __name__ == "__main__":
    typer.run(main)
