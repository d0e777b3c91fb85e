"""Count how often a strong language model's recorded verdicts are right: `python -m benchmarks.judged DATA`.

`benchmarks/data/judged.json` holds the answers to the judge's prompts by their hash: sessions of 36 drawn tasks of each
log, whose end is hidden. The rivals are the rules without a model, and to call each session a success.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import orjson

from benchmarks.runs import read_runs
from benchmarks.taught import recorded
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire.stats import wilson
from models.judge import JudgeChain
from models.llm.questions import LlmJudge
from streams.offline.memory_pipeline import run_logs

CASSETTE = Path(__file__).parent / "data" / "judged.json"
LOGS, SESSIONS = ("intercode", "mint", "tau1"), 36


def drawn(sessions: Iterable[LoggedSession], log: str) -> list[LoggedSession]:
    """One session of each drawn task whose reward is known. ALFWorld would be a third of MINT's."""
    of_log = (each for each in sessions if each.source == log and each.reward is not None)
    order = sorted((each for each in of_log if not each.task.startswith("alfworld")), key=lambda each: each.session)
    Random(0).shuffle(order)
    by_task: dict[str, LoggedSession] = {}
    for each in order:
        if each.events:
            by_task.setdefault(each.task, each)
    return list(by_task.values())[:SESSIONS]


def count(ended: Sequence[str], labels: Sequence[str]) -> str:
    abstained = labels.count("abstained")
    right, judged = sum(map(str.__eq__, ended, labels)), len(labels) - abstained
    return "{} of {} right ({:.2f}–{:.2f}), {} abstained".format(right, judged, *wilson(right, judged), abstained)


async def measure(sessions: Sequence[LoggedSession], answers: dict[str, Any]) -> dict[str, str]:
    model = LlmJudge(*recorded(answers), lambda result, tokens: None)
    rules, found = JudgeChain(), dict[str, str]()
    for log in LOGS:
        asked = {each.session: each for each in drawn(sessions, log)}
        hidden = [replace(each, outcome="unknown", reward=None) for each in asked.values()]
        played = (await run_logs(hidden, seed=0, learn=False)).trajectories
        ended = [asked[each.session].outcome for each in played]
        verdicts = [rules.judge(each).label for each in played]
        opinions = [each.verdict.label if each else "abstained" for each in map(model.known, played)]
        left = [place for place, label in enumerate(verdicts) if label == "abstained"]
        found |= {
            f"{log}, model": count(ended, opinions),
            f"{log}, rules": count(ended, verdicts),
            f"{log}, model where the rules abstain": count([ended[at] for at in left], [opinions[at] for at in left]),
            f"{log}, always success": count(ended, ["success"] * len(ended)),
        }
    return found


if __name__ == "__main__":
    done = asyncio.run(measure(list(read_runs(Path(sys.argv[1]))), orjson.loads(CASSETTE.read_bytes())))
    print(*(f"{name}: {value}" for name, value in done.items()), sep="\n")
