"""Measure what is said after a failure on logged sessions: `python -m benchmarks ways_out --data DIR`.

A case is a call that failed and the next call of the same tool that worked, where that one has words which the session
had not seen before. What is said is right if it holds all of them. Agents and tasks are held out (A new agents, T new
tasks, AT both); items, names that sessions lack, and when they are said, are learned from the other sessions only.
Beside it stand, in the same run: as many names that were lacking most often, the likeliest change of an item, the best
backed recovery of the same class, the most frequent of the tool, the nearest by goal and by error, and what is said
dealt out to other cases. Look-ups, the same text for every failure of a kind, are counted apart: of the failures for a
name, how often one is said, and how often the session's next call that worked was that; beside the look-up that is most
used after any failure. At places (databases recovered from the log): how often a card of 12 names holds all that is
new. Asking is timed, in CPU.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from msgspec.structs import replace

from fleetlore.calls.card import card
from fleetlore.calls.context import KEYWORDS, text_of
from fleetlore.calls.document import LookUp
from fleetlore.calls.failed_call import FailedCall
from fleetlore.calls.features import Call
from fleetlore.calls.lacked import MOST, known_to
from fleetlore.calls.model import CallModel
from fleetlore.calls.nearest import Near
from fleetlore.cli.output import print_json
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.ways_out import CANDIDATES, look_up_id, masked, ranked, way_out
from fleetlore.stats.intervals import wilson
from fleetlore.transcripts.read import read_sessions
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import Judgment, Step, Trajectory
from models.backtest.advice.places import places_of
from models.backtest.advice.words import literals, words
from models.backtest.splitting import split
from models.calls.look_ups import Met, failures_met, key
from models.calls.training import CallTraining, kind_of
from models.calls.ways_out import cases as cases_of
from models.calls.ways_out import said_by
from models.distil.distiller import distil
from models.judge.chain import JudgeChain
from models.memory.item_state import ItemState
from streams.offline.hear import call_log
from streams.offline.memory_pipeline import run_logs

SHARE = 0.2
SUREST = 0.25
PSEUDO = ("submit", "blocked")


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
    failed: FailedCall
    lacks: frozenset[str]
    held: str


class Said(NamedTuple):
    """What was said in a case, and how sure."""

    slice: str
    chance: float
    right: bool
    foreign: bool


# What to say in a case, and how sure: None for nothing.
Choice = Callable[[Case], tuple[str, float] | None]

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
    looked: defaultdict[str, defaultdict[str, list[bool | None]]] = defaultdict(lambda: defaultdict(list))
    cards: defaultdict[str, list[bool]] = defaultdict(list)
    micros: list[float] = []
    for seed in seeds:
        train, test = split(runs, seed, SHARE)
        memory, slices = Memory(train), _slices(train)
        for name, asked in _groups(cases(run) for run in test).items():
            for way, choose in memory.ways().items():
                said = [(case, choose(case)) for case in asked]
                found[name][way] += [_said(case, slices(case.run), *each) for case, each in said if each is not None]
            found[name]["cases"] += [Said(slices(case.run), 0.0, right=False, foreign=False) for case in asked]
            found[name]["said, dealt out to others"] += _dealt(asked, memory.said, slices, seed)
        for run in test:
            for met in _met(run):
                for way, hit in memory.look_up(met):
                    looked[f"{run.source} {met.tool}: look-ups, {slices(run)}"][way].append(hit)
        for name, holds in _cards(train, test):
            cards[name] += holds
        micros += memory.micros
    report: dict[str, dict[str, Any]] = {name: dict(_rows(ways)) for name, ways in sorted(found.items())}
    for name, hits in sorted(looked.items()):
        report[name] = {"failures that it may follow": str(len(hits["said"]))}
        for way, some in hits.items():
            shown = [each for each in some if each is not None]
            report[name][way] = f"said {len(shown) / len(some):.2f}, made next {_share(shown)}"
    for name, all_held in sorted(cards.items()):
        report.setdefault("card of 12 names, new tasks", {})[name] = _share(all_held)
    report["asking, µs of CPU"] = {f"p{share}": f"{np.percentile(micros, share):.0f}" for share in (50, 99)}
    return report


def cases(run: Run) -> Iterator[Case]:
    """The ways out of a session, each after the first failure that led to it; a pseudo-call is none."""
    for case in cases_of(run.session, _got_past):
        before = run.session.calls[: case.place + 1]
        held = "\n".join([run.session.goal, *(f"{text_of(step.arguments)}\n{said_by(step)}" for step in before)])
        yield Case(run, case.failed, case.lacks, held.lower())


def _got_past(failed: Step, call: Step) -> bool:
    return call.tool == failed.tool and not call.failed and not text_of(call.arguments).lower().startswith(PSEUDO)


def _met(run: Run) -> list[Met]:
    kinds = []
    for step in run.session.calls:
        made = Call.made(step.tool, step.arguments)
        kinds.append(kind_of(step, made)[1:] if step.failed else None)
    return list(failures_met(run.session, kinds))


class Memory:
    """What the fleet has learned of some sessions: the items, and a version of the call model."""

    def __init__(self, runs: Sequence[Run]) -> None:
        judges, states = JudgeChain(), defaultdict[str, ItemState](ItemState)
        for run in runs:
            for candidate in distil(Judgment(trajectory=run.session.digest(), verdict=judges.judge(run.session))):
                states[candidate.item_id].merge(candidate)
        training = CallTraining()
        for session in sorted((run.session for run in runs), key=lambda each: (each.ended, each.id)):
            training.learn(session)
        self.model = CallModel.from_bytes(training.version().weights)
        self._own = training.look_ups.own_words()
        self.index = LoreIndex()
        self._frequent: dict[str, MemoryItem] = {}
        for state in states.values():
            item = state.to_item()
            if item is not None:
                self.index.put_item(item, 0.0)
                best = self._frequent.get(item.tool)
                if item.near and (best is None or (item.agents, item.id) > (best.agents, best.id)):
                    self._frequent[item.tool] = item
        lacking: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for case in chain.from_iterable(map(cases, runs)):
            lacking[case.failed.failure.tool].update(case.lacks)
        self._lacking = {tool: [name for name, _ in counts.most_common()] for tool, counts in lacking.items()}
        self._look_ups = {look_up_id(each) for each in self.model.look_ups.values()}
        self.micros: list[float] = []
        self._most_used: dict[str, LookUp] = {}
        for look_up in sorted(self.model.look_ups.values(), key=lambda each: each.used):
            self._most_used[look_up.tool] = look_up

    def ways(self) -> dict[str, Choice]:
        """What is said, what is likeliest however unlikely that is, and the rivals."""
        return {
            "said": self.said,
            "said, look-ups left out": lambda case: self.said(case, look_ups=False),
            "likeliest names": self.likeliest,
            f"the {MOST} most often lacking": self.most_often,
            "likeliest change of an item": self.ranked_first,
            "same class, best backed": self.of_class,
            "most frequent": self.most_frequent,
            "nearest goal": lambda case: self._nearest(case, lambda near: near.goal),
            "nearest error": lambda case: self._nearest(case, lambda near: near.error),
        }

    def said(self, case: Case, *, look_ups: bool = True) -> tuple[str, float] | None:
        """As an agent hears it at a place that is not known."""
        began = time.thread_time_ns()
        found = way_out(self.index, case.failed, self.model)
        self.micros.append((time.thread_time_ns() - began) / 1e3)
        if found is None or (found.id in self._look_ups and not look_ups):
            return None
        return found.text, found.chance

    def likeliest(self, case: Case) -> tuple[str, float] | None:
        """The names, however unlikely they are all."""
        lacked = self.model.lacked.get(case.failed.failure.tool)
        names, chance = lacked.most_likely(case.failed) if lacked is not None else ((), 0.0)
        return (" ".join(names), chance) if names else None

    def most_often(self, case: Case) -> tuple[str, float] | None:
        """As many names that were lacking most often after failures of the tool."""
        known = known_to(case.failed)
        names = (name for name in self._lacking.get(case.failed.failure.tool, ()) if name not in known)
        return " ".join(islice(names, MOST)), 1.0

    def ranked_first(self, case: Case) -> tuple[str, float] | None:
        """The change of an item that is first in rank."""
        best = ranked(self.index, case.failed)
        return (masked(best[0].change, case.failed), best[1]) if best is not None else None

    def of_class(self, case: Case) -> tuple[str, float] | None:
        """The best backed item of the same class, whole."""
        items = self.index.recoveries(case.failed.failure.class_)
        return (_whole(items[0], case), float(items[0].support)) if items else None

    def most_frequent(self, case: Case) -> tuple[str, float] | None:
        """The item of the tool that most agents back, whole."""
        item = self._frequent.get(case.failed.failure.tool)
        return (_whole(item, case), 1.0) if item is not None else None

    def _nearest(self, case: Case, likeness: Callable[[Near], np.ndarray[Any, Any]]) -> tuple[str, float] | None:
        near = self.index.recoveries_near(case.failed.failure.tool, case.failed.words, CANDIDATES)
        if not near.examples:
            return None
        best = int(np.argmax(likeness(near)))
        return masked(near.examples[best].change, case.failed), float(likeness(near)[best])

    def look_up(self, met: Met) -> Iterator[tuple[str, bool | None]]:
        """By way to choose, whether what is said is what the session did next; None where nothing is said."""
        made = met.by, key(met.text, self._own[met.by])

        def hit(said: LookUp | None) -> bool | None:
            return None if said is None else (said.by, key(said.text, self._own[said.by])) == made

        yield "said", hit(self.model.look_ups.get((met.tool, met.kind)))
        yield "most used after any failure", hit(self._most_used.get(met.tool))


def _whole(item: MemoryItem, case: Case) -> str:
    return masked(f"{item.title}\n{item.content}", case.failed)


def _groups(of: Iterable[Iterable[Case]]) -> dict[str, list[Case]]:
    groups: defaultdict[str, list[Case]] = defaultdict(list)
    for some in of:
        for case in some:
            groups[f"{case.run.source} {case.failed.failure.tool}"].append(case)
    return dict(groups)


def _slices(train: Iterable[Run]) -> Callable[[Run], str]:
    agents = {(run.source, run.agent) for run in train}
    tasks = {(run.source, run.task) for run in train}

    def of(run: Run) -> str:
        return "A" * ((run.source, run.agent) not in agents) + "T" * ((run.source, run.task) not in tasks)

    return of


def _said(case: Case, slice_: str, text: str, chance: float) -> Said:
    foreign = any(each not in case.held for each in literals(text) if "<value>" not in each)
    return Said(slice_, chance, case.lacks <= _words(text), foreign)


@lru_cache(maxsize=4096)
def _words(text: str) -> frozenset[str]:
    return frozenset(words(text))


def _dealt(asked: Sequence[Case], choose: Choice, slices: Callable[[Run], str], seed: int) -> list[Said]:
    """What is said, dealt out anew among the cases in which something is said."""
    said = [(case, best) for case in asked if (best := choose(case)) is not None]
    texts = [text for _, (text, _) in said]
    Random(seed).shuffle(texts)
    return [_said(case, slices(case.run), text, chance) for (case, (_, chance)), text in zip(said, texts, strict=True)]


def _rows(ways: Mapping[str, list[Said]]) -> Iterator[tuple[str, str]]:
    counts = Counter(each.slice for each in ways["cases"])
    for slice_, size in sorted(counts.items()):
        yield f"{slice_}: cases", str(size)
        for way, said in ways.items():
            if way == "cases":
                continue
            some = sorted((each for each in said if each.slice == slice_), key=lambda each: -each.chance)
            foreign = sum(each.foreign for each in some) / len(some) if some else 0.0
            yield (
                f"{slice_}: {way}",
                f"said {len(some) / size:.2f}, right {_share([each.right for each in some])}, foreign {foreign:.2f}; "
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
