"""Count how often the judges are right, by tools, on logged runs whose reward they do not see.

    python -m benchmarks.judges FOLDER [--critic FILE | --fit-critic] [--sessions N] [--llm N [--seed 0]]

Every judge of the chain is asked about every session by itself, whether or not one before it would have decided: the
rules; the learned critic in a file, or with `--fit-critic` one that is fitted here on half of the model families and
half of the tasks (of the databases, where the log tells them) and asked about sessions of the others only; and with
`--llm` the model that FLEETLORE_LLM_URL and its settings name, about N sessions of each source, drawn at random. What
is true is the environment's reward. Sources whose agents end a session themselves come first. `--sessions` bounds those
fitted on and those that a fitted judge is asked about, of each source.

Beside a fitted critic stands a judge of the shape alone (`benchmarks.judge_structure`), fitted on the same sessions,
and both once more with the last call cut off: where the environment stops who is right, the end tells the verdict.
`heard` is what counts of a judge by a record that begins with these sessions (`benchmarks.judge_record`), and beside it
one that calls every session a failure.
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

from benchmarks.judge_and_distiller import read_trajectories
from benchmarks.judge_record import always_failed, heard
from benchmarks.judge_structure import structure, without_last_call
from fleetlore.config import Settings
from fleetlore.stats.hashing import stable_hash
from fleetlore.stats.intervals import wilson
from fleetlore.transcripts.read import read_sessions
from fleetlore.wire.trajectory import Trajectory, Verdict
from models.backtest.advice.places import places_of
from models.backtest.scores import kappa_with_silence
from models.judge.chain import RulesJudge
from models.judge.record import tool_family
from models.memory.candidate import FAILURE_BELOW, SUCCESS_ABOVE
from streams.offline.hear import call_log

FAMILIES_SHOWN = 4
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


async def ask_model(settings: Settings, trajectories: Sequence[Trajectory]) -> list[Judged]:
    """The same of a language model; an opinion that it does not give, for whatever reason, counts as abstained."""
    from sinks.metrics import Metrics
    from streams.stages.s3_judgments.language_model import LanguageModel

    model = LanguageModel(settings, Metrics("benchmark"))
    slots = asyncio.Semaphore(settings.llm_concurrency)

    async def one(trajectory: Trajectory) -> Judged:
        async with slots:
            opinion = await model.judge.ask(_hidden(trajectory))
        return trajectory, opinion.verdict if opinion is not None else None

    try:
        return list(await asyncio.gather(*(one(each) for each in trajectories)))
    finally:
        await model.close()


def critic(path: Path | None, trajectories: Sequence[Trajectory]) -> Callable[[Trajectory], Verdict | None]:
    """The critic in a file, or one that is fitted on these sessions."""
    from models.judge.critic import Critic, CriticJudge
    from models.judge.critic_fit import fit

    if path is not None:
        return CriticJudge(Critic.from_bytes(path.read_bytes())).judge
    fitted, _ = fit([_hidden(each) for each in trajectories], [each.ending == "failure" for each in trajectories])
    return CriticJudge(fitted).judge


def show(source: str, name: str, judged: list[Judged]) -> None:
    """All sessions, those whose verdict is sure enough to teach, and each of the most frequent families of tools.

    Nothing where none was asked about.
    """
    if not judged:
        return
    families: dict[str, list[Judged]] = defaultdict(list)
    for trajectory, verdict in judged:
        families[tool_family(trajectory)].append((trajectory, verdict))
    print(f"{source:<12} {name:<13} {'(all)':<24} {Matrix.of(judged).line()}  {kappa_all(judged):>6.2f}")
    sure = [(each, verdict) for each, verdict in judged if verdict and _teaches(verdict)]
    if sure and len(sure) < sum(verdict is not None for _, verdict in judged):
        print(f"{'':<12} {'':<13} {'(sure enough to teach)':<24} {Matrix.of(sure).line()}")
    if len(families) > 1:
        for family in sorted(families, key=lambda each: (-len(families[each]), each))[:FAMILIES_SHOWN]:
            print(f"{'':<12} {'':<13} {family[:24] or '(no tool)':<24} {Matrix.of(families[family]).line()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--critic", type=Path, metavar="FILE")
    which.add_argument("--fit-critic", action="store_true")
    parser.add_argument("--sessions", type=int, metavar="N")
    parser.add_argument("--llm", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    path_of = {path.parent.name: path.parent for path in sorted(options.data.glob("**/trajectories.jsonl.gz"))}
    sources = {name: list(read_trajectories(path)) for name, path in path_of.items()}
    sources = dict(sorted(sources.items(), key=lambda each: not _agents_end(each[1])))
    held = {source: _held(path_of[source], trajectories) for source, trajectories in sources.items()}
    known = [each for source in sources for each in _some(sources[source], held[source], False, options.sessions)]
    learned = critic(options.critic, known) if options.critic or options.fit_critic else None
    shape = structure(known) if options.fit_critic else None
    print(
        f"{'source':<12} {'judge':<13} {'tools':<24} {'asked':>7} {'abst.':>6}  "
        f"{'failure':>7} {'wrong':>6} {'precision':>9}  {'success':>7} {'wrong':>6} {'precision':>9}  "
        f"{'kappa':>6}  {'of all':>6}"
    )
    for source, trajectories in sources.items():
        show(source, "rules", ask(RulesJudge().judge, trajectories))
        if learned is not None:
            asked = [True] * len(trajectories) if options.critic else held[source]
            new = _some(trajectories, asked, True, options.sessions)
            show(source, "critic", ask(learned, new))
            if shape is not None:
                cut = [without_last_call(each) for each in new]
                show(source, "shape", ask(shape, new))
                for name, judge in (("critic", learned), ("shape", shape), ("failed", always_failed)):
                    show(source, f"{name}, heard", heard(judge, new))
                show(source, "critic, cut", ask(learned, cut))
                show(source, "shape, cut", ask(shape, cut))
        if options.llm:
            drawn = random.Random(options.seed).sample(trajectories, min(options.llm, len(trajectories)))
            show(source, "llm", asyncio.run(ask_model(Settings.from_env(), drawn)))


def _teaches(verdict: Verdict) -> bool:
    return not FAILURE_BELOW <= verdict.probability <= SUCCESS_ABOVE


def _held(folder: Path, trajectories: Sequence[Trajectory]) -> list[bool | None]:
    """Of each session whether its family and its task (or database) are held out both (True) or neither (False)."""
    logged = read_sessions(folder)
    places = places_of(map(call_log, logged))
    source = {each.session: each.source for each in logged}
    found: list[bool | None] = []
    for each in trajectories:
        place = places.get((source.get(each.session, ""), each.task), each.task)
        out = {_half(each.agent.partition("/")[0]), _half(place)}
        found.append(out.pop() if len(out) == 1 else None)
    return found


def _some(
    trajectories: Sequence[Trajectory], held: Sequence[bool | None], wanted: bool, most: int | None
) -> list[Trajectory]:
    """Those that are held out, or not; drawn by hash where there are more than `most`."""
    found = [each for each, out in zip(trajectories, held, strict=True) if out is wanted]
    return sorted(found, key=lambda each: (stable_hash(each.session), each.session))[:most]


def _agents_end(trajectories: Sequence[Trajectory]) -> bool:
    """Whether agents talk with a person there, so that no environment stops them when they are right."""
    return any(step.role == "user" for each in trajectories for step in each.steps)


def _half(name: str) -> bool:
    return stable_hash(name) % 2 == 1


def _hidden(trajectory: Trajectory) -> Trajectory:
    return replace(trajectory, ending="unknown", reward=None)


if __name__ == "__main__":
    main()
