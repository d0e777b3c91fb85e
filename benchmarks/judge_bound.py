"""Bound what a judge could tell from a log: several classifiers, left out by task, by model family and by both.

    python -m benchmarks.judge_bound FOLDER [--share .3]

FOLDER holds one source (`steps.jsonl.gz`, `trajectories.jsonl.gz`). Each session gets P(failure) from a fit without it;
what else is left out is the row's split. A classifier speaks on at least `--share` of the sessions: on those above one
threshold and below another. *Foreseen*: both are chosen on the sessions of other tasks, for the greatest kappa there.
*In hindsight*: on the very sessions that are counted, which nobody could know, so no threshold on this classifier does
better. Intervals are of 95 %, by drawing tasks.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.judge_and_distiller import read_trajectories
from benchmarks.judge_structure import shapes
from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.trajectory import Trajectory
from models.data.auroc import auroc

FOLDS = 5
DRAWS = 1000
# Between two thresholds that are tried, this share of the sessions.
STEP = 0.01
# Sessions that a rate is drawn towards the mean of all by.
PRIOR = 2.0

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]
# P(failure) of the sessions at the second places, by those at the first, whose end is known.
Classifier = Callable[[Places, Places], Floats]


class Sessions(NamedTuple):
    """What is known of each of n sessions."""

    all: Sequence[Trajectory]
    failed: Flags
    tasks: npt.NDArray[np.str_]
    families: npt.NDArray[np.str_]

    @classmethod
    def of(cls, found: Iterable[Trajectory]) -> Sessions:
        known = [each for each in found if each.ending in ("success", "failure")]
        families = np.array([each.agent.partition("/")[0] for each in known])
        failed = np.array([each.ending == "failure" for each in known])
        return cls(known, failed, np.array([each.task for each in known]), families)


class Thresholds(NamedTuple):
    """A success is said up to the first, a failure from the second on."""

    success: float
    failure: float

    def spoken(self, chances: Floats) -> Flags:
        found: Flags = (chances <= self.success) | (chances >= self.failure)
        return found


def classifiers(sessions: Sessions) -> dict[str, Classifier]:
    """Of three kinds, and their mean: rates of the task and of the agent; trees on the shape; words of all steps."""
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    failed, shaped = sessions.failed, shapes(sessions.all)
    texts = [" \n ".join([each.goal, *_steps(each)]) for each in sessions.all]

    def rates(fitted: Places, asked: Places) -> Floats:
        mean = float(failed[fitted].mean())
        odds = np.full(len(asked), -_logit(mean))
        for names in (sessions.tasks, np.array([each.agent for each in sessions.all])):
            known = Counter(names[fitted].tolist())
            bad = Counter(names[fitted][failed[fitted]].tolist())
            odds += [_logit((bad[name] + PRIOR * mean) / (known[name] + PRIOR)) for name in names[asked].tolist()]
        return np.asarray(1 / (1 + np.exp(-odds)))

    def shape(fitted: Places, asked: Places) -> Floats:
        trees = ExtraTreesClassifier(300, min_samples_leaf=3, random_state=0)
        return np.asarray(trees.fit(shaped[fitted], failed[fitted]).predict_proba(shaped[asked])[:, 1])

    def words(fitted: Places, asked: Places) -> Floats:
        seen = TfidfVectorizer(min_df=2, sublinear_tf=True)
        known = seen.fit_transform([texts[place] for place in fitted])
        model = LogisticRegression(C=10.0, solver="liblinear", random_state=0).fit(known, failed[fitted])
        return np.asarray(model.predict_proba(seen.transform([texts[place] for place in asked]))[:, 1])

    return {"rates": rates, "shape": shape, "words": words}


def splits(sessions: Sessions) -> dict[str, list[tuple[Places, Places]]]:
    """By what is new to the fit: places of those fitted on and asked about."""
    fold = np.array([stable_hash(f"bound/{task}") % FOLDS for task in sessions.tasks.tolist()])
    families = sorted(set(sessions.families.tolist()))
    of_task = [fold == each for each in range(FOLDS)]
    of_family = [sessions.families == each for each in families]
    some = np.array([stable_hash(f"bound/{each.session}") % FOLDS for each in sessions.all])
    found = {
        "nothing": [(~asked, asked) for asked in (some == each for each in range(FOLDS))],
        "tasks": [(~asked, asked) for asked in of_task],
        "families": [(~asked, asked) for asked in of_family],
        "both": [(~task & ~family, task & family) for task in of_task for family in of_family],
    }
    return {
        name: [(np.flatnonzero(fitted), np.flatnonzero(asked)) for fitted, asked in each if asked.any()]
        for name, each in found.items()
    }


def kappa(said: Flags, failed: Flags) -> float:
    """Cohen's; 0 where all are said the same."""
    agreed, mine, true = float((said == failed).mean()), float(said.mean()), float(failed.mean())
    chance = mine * true + (1 - mine) * (1 - true)
    return (agreed - chance) / (1 - chance) if chance < 1 else 0.0


def best(chances: Floats, failed: Flags, share: float) -> Thresholds:
    """The thresholds of the greatest kappa that speak on at least this share."""
    order = np.sort(chances)
    marks = np.unique(np.append(np.arange(0, len(order), max(1, round(STEP * len(order)))), len(order)))
    found: list[tuple[float, Thresholds]] = []
    for low in marks.tolist():
        for high in marks[marks >= low].tolist():
            if low + len(order) - high < share * len(order):
                continue
            at = Thresholds(order[low - 1] if low else -1.0, order[high] if high < len(order) else 2.0)
            spoken = at.spoken(chances)
            found.append((kappa(chances[spoken] >= at.failure, failed[spoken]), at))
    return max(found)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--share", type=float, default=0.3)
    options = parser.parse_args()
    sessions = Sessions.of(read_trajectories(options.data))
    made = classifiers(sessions)
    failed = sessions.failed
    print(f"{len(failed)} sessions of {len(set(sessions.tasks))} tasks, {failed.mean():.0%} failed")
    print(f"{'new':<9} {'judge':<7} {'AUROC':>5} {'kappa':>6}  {'foreseen':<20} {'spoke':>5}  in hindsight")
    for name, parts in splits(sessions).items():
        chances = {judge: _left_out(fit, parts, len(failed)) for judge, fit in made.items()}
        chances["mean"] = np.mean(list(chances.values()), axis=0)
        for judge, each in chances.items():
            print(f"{name:<9} {judge:<7} {_line(each, sessions, options.share)}", flush=True)


def _line(chances: Floats, sessions: Sessions, share: float) -> str:
    failed = sessions.failed
    said, spoken = np.zeros(len(failed), bool), np.zeros(len(failed), bool)
    fold = np.array([stable_hash(f"thresholds/{task}") % FOLDS for task in sessions.tasks.tolist()])
    for each in range(FOLDS):
        asked = fold == each
        at = best(chances[~asked], failed[~asked], share)
        said[asked], spoken[asked] = chances[asked] >= at.failure, at.spoken(chances[asked])
    hindsight = best(chances, failed, share)
    heard = hindsight.spoken(chances)
    low, high = _interval(said[spoken], failed[spoken], sessions.tasks[spoken])
    return (
        f"{auroc(chances.tolist(), failed.tolist()):>5.3f} {kappa(chances > 0.5, failed):>6.2f}  "
        f"{kappa(said[spoken], failed[spoken]):>5.2f} ({low:>5.2f}–{high:.2f})   {spoken.mean():>5.0%}  "
        f"{kappa(chances[heard] >= hindsight.failure, failed[heard]):>5.2f}"
    )


def _left_out(fit: Classifier, parts: Sequence[tuple[Places, Places]], count: int) -> Floats:
    chances = np.zeros(count)
    for fitted, asked in parts:
        chances[asked] = fit(fitted, asked)
    return chances


def _interval(said: Flags, failed: Flags, tasks: npt.NDArray[np.str_]) -> tuple[float, float]:
    by: defaultdict[str, list[int]] = defaultdict(list)
    for place, task in enumerate(tasks.tolist()):
        by[task].append(place)
    clusters, chance, found = list(by.values()), np.random.default_rng(0), []
    for _ in range(DRAWS):
        drawn = np.concatenate([clusters[each] for each in chance.integers(len(clusters), size=len(clusters))])
        found.append(kappa(said[drawn], failed[drawn]))
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def _logit(chance: float) -> float:
    return float(np.log(chance / (1 - chance)))


def _steps(session: Trajectory) -> Iterator[str]:
    return (f"{step.role} {step.tool} {step.arguments} {step.result} {step.error_message}" for step in session.steps)


if __name__ == "__main__":
    main()
