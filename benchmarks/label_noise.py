"""Measure how much worse the recalled items are when up to 40 % of the verdicts are flipped.

    python -m benchmarks label_noise [--logs FOLDER]

Logged runs of real agents with the outcome that their environment gave. Each label is flipped with a chance of 0 to 40
%, under three seeds; the distiller and the merging are the real ones. A fifth of the agents is held out: their sessions
ask, and the sessions of the others are the memory. A session asks with its goal, and where it met an error that says
something, with that error; of all items the three nearest are recalled (cosine of the encoder that the store uses, over
the text it uses).

An item is *about* a question where it quotes a session of the same task, or is about the same failure pattern. It is
*supported* where a session that it quotes did end as the item says, and *right* where all did: the way that worked
comes from a session that succeeded, and the one that did not from one that failed. (A recovery says only what the
environment showed: it is right.)

hit@3         share of the questions with a supported item about them among the three
hit@3 strict  the same with a right one, which is what the bar is about
right         of the recalled items that are about their question, the share that is right
best kept     hit@3 strict of somebody who knows the truth and picks among the examples that an item keeps: what better
              voting could reach at the most

The peer appends an item a session, titled with its goal and labelled with its verdict, as a memory without merging
does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from benchmarks.judge_and_distiller import read_trajectories
from benchmarks.report import Report, Row
from fleetlore.errors import ConfigError
from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.trajectory import Judgment, Trajectory
from models.distil.distiller import distil
from models.judge.chain import JudgeChain
from models.memory.item_state import ItemState
from models.memory.quality import is_junk, is_verdict

LOGS = Path(__file__).parents[2] / "shared" / "data" / "dev"
RATES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)
BAR_RATE, BAR = 0.3, 0.9
SEEDS = 3
RECALLED = 3
QUESTIONS = 1_000
HELD_OUT = 5  # one agent in so many asks


class Question(NamedTuple):
    """What is asked for: anything about the task, or anything about the pattern where there is one."""

    text: str
    task: str
    pattern: str | None


class Entry(NamedTuple):
    """One thing that can be recalled, what it is about, and of how many quoted sessions it says what is true.

    `could_be` right: of each side that it quotes it keeps a session that did end so.
    """

    text: str
    tasks: frozenset[str]
    pattern: str | None
    supported: bool
    right: bool
    could_be: bool


@dataclass(frozen=True, slots=True)
class Quality:
    hit: float
    strict: float
    right: float
    best: float


def run(quick: bool, folder: Path = LOGS) -> Report:
    """Measure over all sources below `folder`; their questions count alike.

    Raises:
        ConfigError: there are no logged runs.
    """
    sources = [_Source(path.parent, quick) for path in sorted(folder.glob("*/trajectories.jsonl.gz"))]
    sources = [source for source in sources if source.questions and source.memory]
    if not sources:
        raise ConfigError(f"{folder} holds no logged runs of several agents on the same tasks")
    rates = (0.0, BAR_RATE) if quick else RATES
    seeds = range(1 if quick else SEEDS)
    rows: list[Row] = []
    curve: dict[float, Quality] = {}
    appended: dict[float, Quality] = {}
    for rate in rates:
        by_source = {source.name: [source.quality(rate, seed) for seed in seeds] for source in sources}
        curve[rate] = _mean(each for found in by_source.values() for each, _ in found)
        appended[rate] = _mean(each for found in by_source.values() for _, each in found)
        shown = {"all": [pair for pairs in by_source.values() for pair in pairs]}
        for name, found in (shown | (by_source if rate in (0.0, BAR_RATE) else {})).items():
            ours, peer = _mean(each for each, _ in found), _mean(each for _, each in found)
            note = f"{rate:.0%} of the labels flipped"
            rows += [
                Row(name=f"{name}: hit@3", figure=ours.hit, unit="share", note=note),
                Row(name=f"{name}: hit@3 strict", figure=ours.strict, unit="share", note=note),
                Row(name=f"{name}: right", figure=ours.right, unit="share", note=note),
                Row(name=f"{name}: right, appended", figure=peer.right, unit="share", note=note),
                Row(name=f"{name}: best kept", figure=ours.best, unit="share", note=note),
            ]
    clean, noisy = curve[0.0], curve[BAR_RATE]
    supported = Report(
        name="label_noise_supported",
        figure=noisy.hit / clean.hit,
        bar=BAR,
        unit=f"of hit@3 of supported items kept with {BAR_RATE:.0%} of the labels flipped",
        peers={},
        note=f"{clean.hit:.3f} with the labels as they are, {noisy.hit:.3f} with {BAR_RATE:.0%} flipped; "
        "above 1, because flipped "
        "labels give tasks that nobody solved a second side, and so an item of which one side is true",
    )
    return Report(
        name="label_noise",
        figure=noisy.strict / clean.strict,
        bar=BAR,
        unit=f"of hit@3 of right items kept with {BAR_RATE:.0%} of the labels flipped",
        peers={"appended, right items kept": appended[BAR_RATE].right / appended[0.0].right},
        rows=tuple(rows),
        also=(supported,),
        note=f"{clean.strict:.3f} with the labels as they are, {noisy.strict:.3f} with {BAR_RATE:.0%} flipped; "
        f"who knows the truth and picks among the examples kept keeps {noisy.best / clean.strict:.3f}",
    )


class _Source:
    """The runs of one source: those that are remembered, and the questions of the held-out agents."""

    def __init__(self, folder: Path, quick: bool) -> None:
        self.name = folder.name
        runs = list(read_trajectories(folder))
        asking = [each for each in runs if stable_hash(each.agent) % HELD_OUT == 0]
        memory = [each for each in runs if stable_hash(each.agent) % HELD_OUT]
        if quick:
            asking, memory = asking[:200], memory[:2_000]
        self.memory = memory
        self.tasks = {each.session: each.task for each in runs}
        self.truth = {each.session: each.ending for each in runs}
        known = {each.task for each in memory}
        found = [question for each in asking if each.task in known for question in _questions(each)]
        found = Random(0).sample(found, min(QUESTIONS, len(found)))
        self.questions = found

    def quality(self, rate: float, seed: int) -> tuple[Quality, Quality]:
        """Of the items that the memory makes, and of the peer's, with `rate` of its labels flipped."""
        rng = Random(seed)
        noisy = [_flipped(each) if rng.random() < rate else each for each in self.memory]
        return self._ask(self._items(noisy)), self._ask(self._appended(noisy))

    def _items(self, noisy: Sequence[Trajectory]) -> list[Entry]:
        chain = JudgeChain()
        states: dict[str, ItemState] = defaultdict(ItemState)
        for each in noisy:
            for candidate in distil(Judgment(trajectory=each.digest(), verdict=chain.judge(each))):
                states[candidate.item_id].merge(candidate)
        entries = []
        for state in states.values():
            item = state.to_item()
            if item is None or is_junk(item) is not None:
                continue
            # What it quotes: of a strategy the sessions of its way, of all else the best example.
            backing = state.examples["success"]
            quoted = item.sessions if item.kind == "strategy" else (backing[0].session,)
            said = {each.session: each.side for side in state.examples.values() for each in side}
            true = [item.kind == "recovery" or said[session] == self.truth[session] for session in quoted]
            sides = {said[session] for session in quoted}
            kept = [any(self.truth[each.session] == side for each in state.examples[side]) for side in sides]
            entries.append(
                Entry(
                    f"{item.title}\n{item.description}\n{item.when}",
                    frozenset(self.tasks[session] for session in quoted),
                    item.pattern,
                    any(true),
                    all(true),
                    item.kind == "recovery" or all(kept),
                )
            )
        return entries

    def _appended(self, noisy: Sequence[Trajectory]) -> list[Entry]:
        return [
            Entry(each.goal, frozenset([each.task]), None, true, true, true)
            for each in noisy
            for true in (each.ending == self.truth[each.session],)
        ]

    def _ask(self, entries: Sequence[Entry]) -> Quality:
        likeness = (
            _encode([question.text for question in self.questions]) @ _encode([entry.text for entry in entries]).T
        )
        # Ties (an appended goal may be there many times) go to the first that came.
        nearest = np.argsort(-likeness, axis=1, kind="stable")[:, :RECALLED]
        hits, strict, right, about, best = 0, 0, 0, 0, 0
        for question, places in zip(self.questions, nearest, strict=True):
            found = [entries[place] for place in places]
            told = [
                each
                for each in found
                if question.task in each.tasks or (question.pattern is not None and each.pattern == question.pattern)
            ]
            about += len(told)
            right += sum(each.right for each in told)
            hits += any(each.supported for each in told)
            strict += any(each.right for each in told)
            best += any(each.could_be for each in told)
        asked = len(self.questions)
        return Quality(hits / asked, strict / asked, right / about if about else 0.0, best / asked)


def _questions(run: Trajectory) -> list[Question]:
    """Its goal, and the first of its errors that says something."""
    asked = [Question(run.goal, run.task, None)]
    for call in run.calls:
        error = call.error_message or ""
        if call.failed and not call.transient and not is_verdict(call.tool, error, call.error_type):
            return [*asked, Question(f"{call.tool} fails with: {error[:300]}", run.task, call.pattern)]
    return asked


def _flipped(run: Trajectory) -> Trajectory:
    return replace(run, ending="failure" if run.ending == "success" else "success")


_vectors: dict[str, npt.NDArray[np.float32]] = {}


def _encode(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Unit vectors; remembered, for most items say the same whatever the labels."""
    unknown = [text for text in dict.fromkeys(texts) if text not in _vectors]
    if unknown:
        vectors = shared_encoder().encode(unknown)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        _vectors.update(zip(unknown, vectors, strict=True))
    return np.stack([_vectors[text] for text in texts])


def _mean(found: Iterable[Quality]) -> Quality:
    each = list(found)
    return Quality(*(fmean(getattr(one, name) for one in each) for name in ("hit", "strict", "right", "best")))
