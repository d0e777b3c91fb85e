"""Measure what is said after a failure on logged sessions: `python -m benchmarks ways_out --data DIR`.

A case is a call that failed and the next call of the same tool that worked, where that one has words which the session
had not seen before. What is said is right if it holds all of them. Agents and tasks are held out (A new agents, T new
tasks, AT both); items are distilled from the other sessions only. Printed are: how often something is said and how
often it is right, where something is said, and at the quarter that is surest; literals that the session does not hold;
the same with the ranker's weights learned on these training sessions, and on the other sources only; beside the best
backed recovery of the same class, the best backed of the tool, and what is said dealt out to other cases. At places
(databases recovered from the log) also: how often a card of 12 names holds all that is new.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import typer
from msgspec.structs import replace

from fleetlore.calls.card import card
from fleetlore.calls.context import KEYWORDS, text_of
from fleetlore.calls.likeness import FailureWords
from fleetlore.calls.model import CallModel
from fleetlore.calls.nearest import new_part
from fleetlore.cli.output import print_json
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.ways_out import (
    BIAS,
    CANDIDATES,
    LEAST_CHANCE,
    WEIGHTS,
    FailedCall,
    figures,
    masked,
    ranked,
)
from fleetlore.stats.intervals import wilson
from fleetlore.transcripts.read import read_sessions
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import Judgment, Step, Trajectory
from models.backtest.advice.places import places_of
from models.backtest.advice.words import literals, words
from models.backtest.splitting import split
from models.calls.training import CallTraining, said_by
from models.distil.distiller import distil
from models.judge.chain import JudgeChain
from models.memory.item_state import ItemState
from streams.offline.hear import call_log
from streams.offline.memory_pipeline import run_logs

SHARE = 0.2
SUREST = 0.25
ASKED = 800
# Of the weights: a prior with this variance, on figures of unit variance.
PRIOR = 0.3
PSEUDO = ("submit", "blocked")

Vector = npt.NDArray[np.float64]
Weights = tuple[float, Vector]


class Run(NamedTuple):
    """A session. `place`: recovered from the log; empty where there is none."""

    source: str
    session: Trajectory
    place: str

    @property
    def agent(self) -> str:
        return self.session.agent

    @property
    def task(self) -> str:
        return self.session.task


class Case(NamedTuple):
    """A failure that the session got past. `lacks`: words of the call that worked which the session had not seen."""

    run: Run
    step: Step
    failed: FailedCall
    lacks: frozenset[str]
    held: str


class Said(NamedTuple):
    """What was said in a case, and how sure."""

    slice: str
    chance: float
    right: bool
    foreign: bool


app = typer.Typer(add_completion=False)


@app.command()
def main(
    data: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Logged sessions of several sources.")],
    seeds: Annotated[int, typer.Option(min=1, help="How many splits.")] = 3,
    json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Print the figures, all splits together."""
    logged = read_sessions(data)
    places = places_of(call_log(each) for each in logged)
    of = {each.session: (each.source, places.get((each.source, each.task), "")) for each in logged}
    result = asyncio.run(run_logs(logged, seed=0, learn=False))
    runs = [Run(of[each.session][0], each, of[each.session][1]) for each in result.trajectories if not each.part]
    report = measure(runs, range(seeds))
    if json:
        print_json(report)
        return
    for name, rows in report.items():
        typer.echo(name)
        for row, value in rows.items():
            typer.echo(f"  {row:40} {value}")


def measure(runs: Sequence[Run], seeds: Iterable[int]) -> dict[str, dict[str, Any]]:
    """By source and tool: a row for each slice and way to choose."""
    found: defaultdict[str, defaultdict[str, list[Said]]] = defaultdict(lambda: defaultdict(list))
    cards: defaultdict[str, list[bool]] = defaultdict(list)
    learned: list[dict[str, tuple[Vector, Vector]]] = []
    for seed in seeds:
        train, test = split(runs, seed, SHARE)
        memory = Memory(train)
        groups = _groups(cases(run) for run in test)
        pairs = {name: memory.pairs(some) for name, some in _groups(cases(run) for run in train).items()}
        learned.append({name: each for name, each in pairs.items() if each[1].any()})
        slices = _slices(train)
        for name, asked in groups.items():
            own, others = learned[-1].get(name), [each for other, each in learned[-1].items() if other != name]
            chosen = {
                "ranked": memory.chosen((BIAS, np.array(WEIGHTS))),
                "same class, best backed": memory.of_class,
                "most frequent": memory.most_frequent,
            }
            if own is not None:
                chosen["ranked, learned here"] = memory.chosen(fitted([own]))
            if others:
                chosen["ranked, learned on other sources"] = memory.chosen(fitted(others))
            for way, choose in chosen.items():
                said = [(case, choose(case)) for case in asked]
                found[name][way] += [_said(case, slices(case.run), *each) for case, each in said if each is not None]
            found[name]["cases"] += [Said(slices(case.run), 0.0, right=False, foreign=False) for case in asked]
            found[name]["dealt out to others"] += _dealt(asked, memory, slices, seed)
        for name, holds in _cards(train, test):
            cards[name] += holds
    report: dict[str, dict[str, Any]] = {name: dict(_rows(ways)) for name, ways in sorted(found.items())}
    for name, all_held in sorted(cards.items()):
        report.setdefault("card of 12 names, new tasks", {})[name] = _share(all_held)
    bias, weights = fitted([each for some in learned for each in some.values()])
    named = {name: round(float(weight), 2) for name, weight in zip(WEIGHTS._fields, weights, strict=True)}
    report["weights learned on all"] = named | {"bias": round(bias, 2)}
    return report


def cases(run: Run) -> Iterator[Case]:
    """The ways out of a session, each after the first failure that led to it."""
    calls, seen = run.session.calls, words(run.session.goal)
    text, taken = run.session.goal.lower(), set[int]()
    for place, step in enumerate(calls):
        made, said = text_of(step.arguments), said_by(step)
        if step.failed and not step.transient:
            later = next((other for other in range(place + 1, len(calls)) if _works(step, calls[other])), None)
            if later is not None and later not in taken:
                taken.add(later)
                lacks = words(text_of(calls[later].arguments)) - seen - words(made) - KEYWORDS
                failure = failure_of(step.tool, step.arguments, step.error_type, step.error_message)
                failed = FailedCall(made, said, failure, run.session.goal, run.session.id, frozenset(seen))
                if lacks:
                    yield Case(run, step, failed, frozenset(lacks), f"{text}\n{made}\n{said}".lower())
        seen = seen | words(f"{made}\n{said}")
        text += f"\n{made}\n{said}".lower()


def _works(failed: Step, call: Step) -> bool:
    return call.tool == failed.tool and not call.failed and not text_of(call.arguments).lower().startswith(PSEUDO)


class Memory:
    """The items of some sessions."""

    def __init__(self, runs: Sequence[Run]) -> None:
        chain, states = JudgeChain(), defaultdict[str, ItemState](ItemState)
        self._of = {run.session.id: run for run in runs}
        for run in runs:
            for candidate in distil(Judgment(trajectory=run.session.digest(), verdict=chain.judge(run.session))):
                states[candidate.item_id].merge(candidate)
        self.index = LoreIndex()
        self._frequent: dict[str, MemoryItem] = {}
        for state in states.values():
            item = state.to_item()
            if item is not None:
                self.index.put_item(item, 0.0)
                best = self._frequent.get(item.tool)
                if item.near and (best is None or (item.agents, item.id) > (best.agents, best.id)):
                    self._frequent[item.tool] = item

    def chosen(self, weights: Weights) -> Callable[[Case], tuple[str, float] | None]:
        """A way to choose: the best by these weights, and its chance."""
        shipped = weights[0] == BIAS and np.array_equal(weights[1], np.array(WEIGHTS))

        def choose(case: Case) -> tuple[str, float] | None:
            if shipped:
                best = ranked(self.index, case.failed)
                return (best[0].change, best[1]) if best is not None else None
            near, of = self._figures(case)
            if not len(of):
                return None
            chances = 1.0 / (1.0 + np.exp(-(weights[0] + of @ weights[1])))
            place = int(np.argmax(np.round(chances, 9)))
            return near[place][1], float(chances[place])

        return choose

    def of_class(self, case: Case) -> tuple[str, float] | None:
        """The best backed item of the same class, whole."""
        items = self.index.recoveries(case.step.pattern or "")
        return (f"{items[0].title}\n{items[0].content}", float(items[0].support)) if items else None

    def most_frequent(self, case: Case) -> tuple[str, float] | None:
        """The item of the tool that most agents back, whole."""
        item = self._frequent.get(case.step.tool)
        return (f"{item.title}\n{item.content}", 1.0) if item is not None else None

    def pairs(self, asked: Sequence[Case]) -> tuple[Vector, Vector]:
        """Figures of each candidate for training cases, and whether it is right. A third of the cases leaves out items
        of the same task, a third those of the same agent, a third both: the sessions that ask later are like that.
        """
        order = list(asked)
        Random(1).shuffle(order)
        found: list[Vector] = []
        right: list[bool] = []
        for number, case in enumerate(order[:ASKED]):
            near, of = self._figures(case)
            kept = [place for place, (item, _) in enumerate(near) if not self._leaks(item, case.run, number % 3)]
            found.append(of[kept])
            right += [case.lacks <= words(new_part(near[place][1])) for place in kept]
        figures = np.concatenate(found) if found else np.zeros((0, len(WEIGHTS)))
        return figures, np.array(right, float)

    def _figures(self, case: Case) -> tuple[list[tuple[MemoryItem, str]], Vector]:
        failed = case.failed
        asked = FailureWords.of(failed.goal, failed.text, failed.error, failed.failure)
        near = self.index.recoveries_near(failed.failure.tool, asked, CANDIDATES)
        known = np.array(figures(near, asked, failed), float).reshape(-1, len(WEIGHTS))
        return [(each.item, each.change) for each in near.examples], known

    def _leaks(self, item: MemoryItem, run: Run, third: int) -> bool:
        others = [self._of[each.partition("#")[0]] for each in item.sessions if each.partition("#")[0] in self._of]
        return any(
            other.session.id == run.session.id
            or (third != 1 and other.task == run.task)
            or (third != 0 and other.agent == run.agent)
            for other in others
        )


def fitted(pairs: Sequence[tuple[Vector, Vector]]) -> Weights:
    """Logistic regression by Newton's method, each source counting alike."""
    of = np.concatenate([each[0] for each in pairs])
    right = np.concatenate([each[1] for each in pairs])
    share = np.concatenate([np.full(len(each[1]), len(of) / (len(pairs) * max(1, len(each[1])))) for each in pairs])
    mean, spread = of.mean(axis=0), of.std(axis=0) + 1e-9
    design = np.column_stack([np.ones(len(of)), (of - mean) / spread])
    ridge = np.diag([0.0, *[1.0 / PRIOR] * of.shape[1]])
    weights = np.zeros(design.shape[1])
    for _ in range(30):
        chances = 1.0 / (1.0 + np.exp(-np.clip(design @ weights, -30, 30)))
        slope = design.T @ (share * (chances - right)) + ridge @ weights
        curve = (design * (share * chances * (1.0 - chances))[:, None]).T @ design + ridge
        weights -= np.linalg.solve(curve + 1e-9 * np.eye(len(curve)), slope)
    raw: Vector = weights[1:] / spread
    return float(weights[0] - raw @ mean), raw


def _groups(of: Iterable[Iterable[Case]]) -> dict[str, list[Case]]:
    groups: defaultdict[str, list[Case]] = defaultdict(list)
    for some in of:
        for case in some:
            groups[f"{case.run.source} {case.step.tool}"].append(case)
    return dict(groups)


def _slices(train: Iterable[Run]) -> Callable[[Run], str]:
    agents = {(run.source, run.agent) for run in train}
    tasks = {(run.source, run.task) for run in train}

    def of(run: Run) -> str:
        return "A" * ((run.source, run.agent) not in agents) + "T" * ((run.source, run.task) not in tasks)

    return of


def _said(case: Case, slice_: str, change: str, chance: float) -> Said:
    text = masked(change, case.failed)
    foreign = any(each not in case.held for each in literals(text) if "<value>" not in each)
    return Said(slice_, chance, case.lacks <= words(text), foreign)


def _dealt(asked: Sequence[Case], memory: Memory, slices: Callable[[Run], str], seed: int) -> list[Said]:
    """What is said, dealt out anew among the cases in which something is said."""
    said = [(case, best) for case in asked if (best := ranked(memory.index, case.failed)) is not None]
    changes = [best[0].change for _, best in said]
    Random(seed).shuffle(changes)
    return [
        _said(case, slices(case.run), change, chance) for (case, (_, chance)), change in zip(said, changes, strict=True)
    ]


def _rows(ways: Mapping[str, list[Said]]) -> Iterator[tuple[str, str]]:
    counts = Counter(each.slice for each in ways["cases"])
    for slice_, size in sorted(counts.items()):
        yield f"{slice_}: cases", str(size)
        for way, said in ways.items():
            if way == "cases":
                continue
            some = sorted((each for each in said if each.slice == slice_), key=lambda each: -each.chance)
            shown = some if "backed" in way or "frequent" in way else [x for x in some if x.chance >= LEAST_CHANCE]
            foreign = sum(each.foreign for each in shown) / len(shown) if shown else 0.0
            yield (
                f"{slice_}: {way}",
                f"said {len(shown) / size:.2f}, right {_share([each.right for each in shown])}, foreign {foreign:.2f}; "
                f"surest quarter {_share([each.right for each in some[: round(SUREST * size)]])}",
            )


def _cards(train: Sequence[Run], test: Sequence[Run]) -> Iterator[tuple[str, list[bool]]]:
    """At new tasks of known places: whether the card holds all names that are new."""
    placed = [replace(run.session, place=run.place) for run in train if run.place]
    if not placed:
        return
    training = CallTraining()
    for session in sorted(placed, key=lambda each: (each.ended, each.id)):
        training.learn(session)
    known = CallModel.from_bytes(training.version().weights).places
    agents, tasks = {run.agent for run in train}, {run.task for run in train}
    asked = [case for run in test if run.agent in agents and run.task not in tasks for case in cases(run)]
    held: list[bool] = []
    parts: list[bool] = []
    for case in asked:
        names = known.get(case.run.place)
        if names is not None:
            shown = {*card(names, case.failed.goal, case.failed.text, case.failed.seen), *case.failed.seen}
            held.append(case.lacks <= shown)
            shown |= {part for word in shown for part in word.split(".")}
            parts.append({part for word in case.lacks for part in word.split(".")} - KEYWORDS <= shown)
    yield "all words, dotted ones whole", held
    yield "all words, of dotted ones the parts", parts


def _share(hits: Sequence[bool]) -> str:
    if not hits:
        return "-"
    low, high = wilson(sum(hits), len(hits))
    return f"{sum(hits) / len(hits):.2f} ({low:.2f}-{high:.2f}, n {len(hits)})"


if __name__ == "__main__":
    app()
