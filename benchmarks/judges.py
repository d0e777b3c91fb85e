"""Count how often the judges are right, by tools, on logged runs whose reward they do not see.

    python -m benchmarks.judges FOLDER [--llm N [--seed 0]]

The rules are asked about every session, and with `--llm` the model that FLEETLORE_LLM_URL and its settings name about N
sessions of each source, drawn at random. What is true is the environment's reward. Sources whose agents end a session
themselves come first.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from benchmarks.backtest.scores import kappa_with_silence
from benchmarks.judge_and_distiller import read_trajectories
from fleetlore.config import Settings
from fleetlore.stats.intervals import wilson
from fleetlore.wire.trajectory import Trajectory, Verdict
from models.judge.chain import RulesJudge
from models.memory.candidate import SUCCESS_ABOVE

FAMILIES_SHOWN = 4
_MAX_FAMILY = 64
Judged = tuple[Trajectory, Verdict | None]


class Matrix(NamedTuple):
    """What a judge said of sessions, by what was true; `abstained` on the rest."""

    right_failure: int
    wrong_failure: int
    right_success: int
    wrong_success: int
    abstained: int

    @classmethod
    def of(cls, judged: Iterable[Judged]) -> Matrix:
        counts = Counter((verdict and verdict.label, trajectory.ending) for trajectory, verdict in judged)
        return cls(
            counts["failure", "failure"],
            counts["failure", "success"],
            counts["success", "success"],
            counts["success", "failure"],
            counts[None, "failure"] + counts[None, "success"],
        )

    @property
    def kappa(self) -> float:
        """Cohen's kappa over the sessions that were judged; nan where it says nothing."""
        ff, fs, ss, sf, _ = self
        n = ff + fs + ss + sf
        chance = ((ff + fs) * (ff + sf) + (ss + sf) * (ss + fs)) / n**2 if n else 1.0
        return ((ff + ss) / n - chance) / (1 - chance) if chance < 1 else float("nan")

    def line(self) -> str:
        ff, fs, ss, sf, abstained = self
        total = sum(self)
        said_failure, said_success = wilson(ff, ff + fs), wilson(ss, ss + sf)
        parts = [
            f"{total:>7} {abstained / total:>6.0%}",
            f"{ff:>7} {fs:>6} {said_failure[0]:.2f}–{said_failure[1]:.2f}"
            if ff + fs
            else f"{'-':>7} {'-':>6} {'-':>9}",
            f"{ss:>7} {sf:>6} {said_success[0]:.2f}–{said_success[1]:.2f}"
            if ss + sf
            else f"{'-':>7} {'-':>6} {'-':>9}",
            f"{self.kappa:>6.2f}",
        ]
        return "  ".join(parts)


def kappa_all(judged: Sequence[Judged]) -> float:
    """Cohen's kappa over all sessions, where no verdict is an answer that is never right; nan without one."""
    said = [None if verdict is None else verdict.label == "failure" for _, verdict in judged]
    found = kappa_with_silence(said, [trajectory.ending == "failure" for trajectory, _ in judged])
    return float("nan") if found is None else found


def ask(judge: Callable[[Trajectory], Verdict | None], trajectories: Iterable[Trajectory]) -> list[Judged]:
    """Each session with what the judge says of it without its reward."""
    return [(each, judge(_hidden(each))) for each in trajectories]


def tool_family(trajectory: Trajectory) -> str:
    """The server whose tools the session called most, or the tool if it names none; empty without a call.

    A name like `github__create_issue`, `fs.read` or `mcp:fs/read` begins with its server.
    """
    counts: dict[str, int] = {}
    for step in trajectory.steps:
        if step.role == "tool":
            counts[step.tool] = counts.get(step.tool, 0) + 1
    if not counts:
        return ""
    tool = min(counts, key=lambda each: (-counts[each], each))
    for mark in ("__", "/", "."):
        tool = tool.partition(mark)[0] or tool
    return tool[:_MAX_FAMILY]


async def ask_model(settings: Settings, trajectories: Sequence[Trajectory]) -> list[Judged]:
    """The same of a language model; an opinion that it does not give, for whatever reason, counts as abstained."""
    from models.llm.judge import LlmJudge

    model = LlmJudge(settings)
    slots = asyncio.Semaphore(settings.llm_concurrency)

    async def one(trajectory: Trajectory) -> Judged:
        async with slots:
            opinion = await model.ask(_hidden(trajectory))
        return trajectory, opinion.verdict if opinion is not None else None

    try:
        return list(await asyncio.gather(*(one(each) for each in trajectories)))
    finally:
        await model.close()


def show(source: str, name: str, judged: list[Judged]) -> None:
    """All sessions, those in which no call failed, those whose verdict is sure enough to teach, and each of the most
    frequent families of tools.

    Nothing where none was asked about.
    """
    if not judged:
        return
    families: dict[str, list[Judged]] = defaultdict(list)
    for trajectory, verdict in judged:
        families[tool_family(trajectory)].append((trajectory, verdict))
    print(f"{source:<12} {name:<13} {'(all)':<24} {Matrix.of(judged).line()}  {kappa_all(judged):>6.2f}")
    quiet = [(each, verdict) for each, verdict in judged if not any(call.failed for call in each.calls)]
    if quiet:
        print(f"{'':<12} {'':<13} {'(no call failed)':<24} {Matrix.of(quiet).line()}")
    sure = [(each, verdict) for each, verdict in judged if verdict and _is_sure(verdict)]
    if sure and len(sure) < sum(verdict is not None for _, verdict in judged):
        print(f"{'':<12} {'':<13} {'(sure enough to teach)':<24} {Matrix.of(sure).line()}")
    if len(families) > 1:
        for family in sorted(families, key=lambda each: (-len(families[each]), each))[:FAMILIES_SHOWN]:
            print(f"{'':<12} {'':<13} {family[:24] or '(no tool)':<24} {Matrix.of(families[family]).line()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--llm", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    paths = sorted(options.data.glob("**/trajectories.jsonl.gz"))
    sources = {path.parent.name: list(read_trajectories(path.parent)) for path in paths}
    sources = dict(sorted(sources.items(), key=lambda each: not _agents_end(each[1])))
    print(
        f"{'source':<12} {'judge':<13} {'tools':<24} {'asked':>7} {'abst.':>6}  "
        f"{'failure':>7} {'wrong':>6} {'precision':>9}  {'success':>7} {'wrong':>6} {'precision':>9}  "
        f"{'kappa':>6}  {'of all':>6}"
    )
    for source, trajectories in sources.items():
        show(source, "rules", ask(RulesJudge().judge, trajectories))
        if options.llm:
            drawn = random.Random(options.seed).sample(trajectories, min(options.llm, len(trajectories)))
            show(source, "llm", asyncio.run(ask_model(Settings.from_env(), drawn)))


def _is_sure(verdict: Verdict) -> bool:
    return max(verdict.probability, 1 - verdict.probability) > SUCCESS_ABOVE


def _agents_end(trajectories: Sequence[Trajectory]) -> bool:
    """Whether agents talk with a person there, so that no environment stops them when they are right."""
    return any(step.role == "user" for each in trajectories for step in each.steps)


def _hidden(trajectory: Trajectory) -> Trajectory:
    return replace(trajectory, ending="unknown", reward=None)


if __name__ == "__main__":
    main()
