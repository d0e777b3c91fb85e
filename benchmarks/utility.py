"""Measure how well the randomised holdout tells planted helpful, neutral and harmful items apart.

A simulated fleet. Tasks differ in how often they are solved (10 % to 90 %); an item is recalled at tasks of its own
kind, easy or hard ones, three items a session, drawn anew each time. A helpful item adds to the log odds of success
what is 15 percentage points at even odds, a harmful one takes as much away; effects of the items of a session add up.
One verdict in ten is flipped. What an item is worth then comes from the real parts: the draw
(`fleetlore.stats.hashing`), the evidence and the uplift (`models.memory.utility`).

The peer is what memories do that keep a utility without a holdout: success rate of the sessions with the item less that
of all sessions. It credits an item for the tasks at which it is recalled. Beside both stands the difference of the arms
over all sessions, which no product can keep: what a holdout of that share can tell at the most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import fmean

from benchmarks.report import Report, Row
from fleetlore.config import Settings
from fleetlore.stats.hashing import stable_hash, withheld
from models.memory.utility import Evidence, Trials

BAR = 0.90
RECALLS = (100, 300, 1_000, 3_000)
BAR_RECALLS = 1_000
SHARES = (0.05, 0.1, 0.2)
ITEMS_OF_A_KIND = 20
SEEDS = 5
EFFECT = 2 * math.log(0.575 / 0.425)  # log odds: from 42.5 % to 57.5 %
FLIPPED = 0.1
AGENTS = 20
RECALLED = 3

KINDS = ("helpful", "neutral", "harmful")


@dataclass(slots=True)
class Planted:
    """One item and what is measured of it: by the holdout, and how each session with it and without it ended."""

    id: str
    effect: float
    hard: bool
    recalls: int = 0
    trials: Trials = field(default_factory=Trials)
    with_it: list[int] = field(default_factory=list)
    without: list[int] = field(default_factory=list)


def run(quick: bool) -> Report:
    recalls, seeds = (RECALLS[:2], 1) if quick else (RECALLS, SEEDS)
    share = Settings().holdout_share
    rows: list[Row] = []
    figures: dict[tuple[str, float, int], float] = {}
    bounds: dict[tuple[str, float, int], float] = {}
    peers: dict[str, float] = {}
    for each in SHARES if not quick else (share,):
        runs = [simulate(seed, each, recalls) for seed in range(seeds)]
        for number in recalls:
            for kind in ("helpful", "harmful"):
                figures[kind, each, number] = fmean(run[number][kind] for run in runs)
                note = f"{kind} against neutral, {number} recalls an item, {each:.0%} withheld"
                bounds[kind, each, number] = fmean(run[number][f"{kind} unbounded"] for run in runs)
                rows.append(Row(name=f"AUC {kind}", figure=figures[kind, each, number], unit="AUC", note=note))
                bound = bounds[kind, each, number]
                rows.append(Row(name=f"AUC {kind}, all sessions", figure=bound, unit="AUC", note=note))
            for kind in KINDS if number == recalls[-1] else ():
                retired = fmean(run[number][f"{kind} retired"] for run in runs)
                note = f"share whose interval is wholly below 0 after {number} recalls, {each:.0%} withheld"
                rows.append(Row(name=f"retired {kind}", figure=retired, unit="share", note=note))
            if each == share:
                for kind in ("helpful", "harmful"):
                    naive = fmean(run[number][f"{kind} naive"] for run in runs)
                    note = f"success with the item less success of all sessions, after {number} recalls"
                    rows.append(Row(name=f"AUC {kind}, no holdout", figure=naive, unit="AUC", note=note))
                    if number == min(BAR_RECALLS, recalls[-1]) and kind == "helpful":
                        peers["no holdout"] = naive
    at = min(BAR_RECALLS, recalls[-1])
    (helpful, harmful) = (figures[kind, share, at] for kind in ("helpful", "harmful"))
    return Report(
        name="utility",
        figure=helpful,
        bar=BAR,
        unit=f"AUC of helpful against neutral items after {at} recalls each, {share:.0%} withheld",
        peers=peers,
        reference="no holdout",
        rows=tuple(rows),
        note=f"mean of {seeds} seeds; AUC of harmful against neutral items: {harmful:.3f}; "
        f"the difference over all sessions: {bounds['helpful', share, at]:.3f}, {bounds['harmful', share, at]:.3f}",
    )


def simulate(seed: int, share: float, recalls: Sequence[int]) -> dict[int, dict[str, float]]:
    """By recalls of an item: AUCs of the holdout and of the peer, and the share of each kind that would be retired."""
    rng = Random(seed)
    items = [
        Planted(f"item-{kind}-{number}-{seed}", effect, hard=number % 2 == 0)
        for kind, effect in zip(KINDS, (EFFECT, 0.0, -EFFECT), strict=True)
        for number in range(ITEMS_OF_A_KIND)
    ]
    by_kind = {hard: [item for item in items if item.hard == hard] for hard in (True, False)}
    found: dict[int, dict[str, float]] = {}
    sessions = successes = 0
    for number in recalls:
        while sum(item.recalls for item in items) < number * len(items):
            successes += _session(rng, f"{seed}-{sessions}", by_kind, share)
            sessions += 1
        found[number] = _measured(items, successes / sessions)
    return found


def _session(rng: Random, session: str, items: dict[bool, list[Planted]], share: float) -> bool:
    hard = rng.random() < 0.5
    rate = rng.uniform(0.1, 0.5) if hard else rng.uniform(0.5, 0.9)
    recalled = rng.sample(items[hard], RECALLED)
    shown = {item.id: not withheld(session, item.id, share) for item in recalled}
    odds = math.log(rate / (1 - rate)) + sum(item.effect for item in recalled if shown[item.id])
    succeeded = (rng.random() < 1 / (1 + math.exp(-odds))) != (rng.random() < FLIPPED)
    for item in recalled:
        item.recalls += 1
        (item.with_it if shown[item.id] else item.without).append(succeeded)
        item.trials.add(
            Evidence(
                item_id=item.id,
                tenant="default",
                session=session,
                revision=(1, 0.0),
                shown=shown[item.id],
                outcome=int(succeeded),
                agent=f"agent-{stable_hash(session) % AGENTS}",
            )
        )
    return succeeded


def _measured(items: Sequence[Planted], overall: float) -> dict[str, float]:
    uplift: dict[str, list[float]] = {kind: [] for kind in KINDS}
    naive: dict[str, list[float]] = {kind: [] for kind in KINDS}
    unbounded: dict[str, list[float]] = {kind: [] for kind in KINDS}
    retired: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    for item in items:
        kind = KINDS[0] if item.effect > 0 else KINDS[2] if item.effect < 0 else KINDS[1]
        measured = item.trials.uplift
        uplift[kind].append(measured.estimate if measured else 0.0)
        retired[kind].append(measured is not None and measured.high < 0)
        naive[kind].append(fmean(item.with_it) - overall)
        unbounded[kind].append(fmean(item.with_it) - (fmean(item.without) if item.without else overall))
    return {
        "helpful": auc(uplift["helpful"], uplift["neutral"]),
        "harmful": auc(uplift["neutral"], uplift["harmful"]),
        "helpful naive": auc(naive["helpful"], naive["neutral"]),
        "harmful naive": auc(naive["neutral"], naive["harmful"]),
        "helpful unbounded": auc(unbounded["helpful"], unbounded["neutral"]),
        "harmful unbounded": auc(unbounded["neutral"], unbounded["harmful"]),
        **{f"{kind} retired": fmean(retired[kind]) for kind in KINDS},
    }


def auc(above: Sequence[float], below: Sequence[float]) -> float:
    """Chance that one of `above` is greater than one of `below`; ties count for half."""
    return fmean((a > b) + (a == b) / 2 for a in above for b in below)
