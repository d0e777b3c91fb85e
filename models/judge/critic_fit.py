"""Fitting a critic.

Linear, because boosted trees over the same state of the steps were worse on new agents and tasks. A family of tools apart,
because one fit for all takes its idea of failure from the families with the most sessions.

Scores are calibrated on sessions whose agents, tasks or both were left out of the fit, because new agents on new tasks are what a
critic is for. One slope serves all of these: with ten agents in a log, a slope for new agents alone follows whom chance left
out (measured: it turned an AUROC of .74 into .50). An agent that was fitted on has a slope of its own, from the sessions whose task
alone was left out: what is known of an agent says more than that one slope grants. Tools of no known family are scored by a fit on
all families, calibrated on families that were left out: there it says little more than how often sessions fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fleetlore.errors import ConfigError, ModelUnavailable
from fleetlore.stats.bottom_k import stable_hash
from fleetlore.wire.trajectory import Trajectory
from models.judge.calibration import Flags, platt
from models.judge.critic import CONFIDENCE, KNOWN, VIEWS, Critic, FamilyScore, Floats, group_of
from models.judge.critic_features import BITS, WORD_BITS, Indices, Values, features, word_places
from models.judge.prefix import first_calls

# A family with fewer sessions has no fit of its own; of one with more than most, only the first ones are in the fit of all.
LEAST: Final = 100
MOST: Final = 1500
# Agents and tasks are dealt into so many parts, and each is left out once.
PARTS: Final = 3
# A word is known when this many sessions had it; a session is strange when it has fewer known words than 99 % of those fitted.
KNOWN_FROM: Final = 5
STRANGE: Final = 0.01

Numbers = npt.NDArray[np.int64]


# In `LeftOut`: the fit knew this agent or task.
FITTED: Final = -1


class LeftOut(NamedTuple):
    """What was predicted of sessions by fits without them, n each.

    Attributes:
        logits: of P(fails), calibrated.
        agents, tasks: numbers of those that were left out of the fit; `FITTED` where it knew them.
    """

    logits: Floats
    failed: Flags
    agents: Numbers
    tasks: Numbers


def fit(
    trajectories: Sequence[Trajectory], failed: Sequence[bool] | Flags, seed: int = 0
) -> tuple[Critic, list[LeftOut]]:
    """Fit a critic on sessions whose end is known; the same critic for the same sessions in the same order.

    Returns:
        The critic, and for those who ask how it does on new agents and tasks, what was predicted of the sessions left out.

    Raises:
        ConfigError: none of them failed, or all did.
        ModelUnavailable: the extra `[backtest]` is not installed.
    """
    failed = np.asarray(failed, bool)
    if len(failed) != len(trajectories) or _alike(failed):
        raise ConfigError("a critic needs sessions that failed and sessions that did not")
    tools = _families(trajectories, failed)
    groups = np.array([group_of(tools, t.steps) for t in trajectories], np.int64)
    # Dealt out in the order of their hashes, so that neighbours in a list of names do not go together.
    agent, task = _places([t.agent for t in trajectories]), _places([t.task or t.goal for t in trajectories])
    agents, tasks = agent % PARTS, task % PARTS
    count = max(tools.values(), default=0) + 1
    weights = np.zeros((count, len(VIEWS), 2**BITS), np.float16)
    bias = np.zeros((count, len(VIEWS)), np.float32)
    calibration = np.zeros((count, len(VIEWS), 2, 2), np.float32)
    records: list[FamilyScore] = []
    left_out: list[LeftOut] = []
    vectors = [features(t, VIEWS) for t in trajectories]
    for view, calls in enumerate(VIEWS):
        running = np.array([calls is None or first_calls(t, calls) is not None for t in trajectories])
        for group in range(count):
            rows = _balanced(groups) if group == 0 else np.flatnonzero(groups == group)
            if not _alike(failed[rows[running[rows]]]):
                rows = rows[running[rows]]
            x, y = _matrix([vectors[row][view] for row in rows]), failed[rows]
            weights[group, view], bias[group, view] = _regression(x, y, seed)
            if group == 0:
                parts = [groups[rows] == each for each in range(count)]
            else:
                parts = [(agents[rows] == part) | (tasks[rows] == part) for part in range(PARTS)]
            scores, places, part_of = _left_out(x, y, parts, seed)
            if group == 0 and not len(places):
                # There is no other family to try it on: all that it knows of others is how often sessions fail.
                calibration[group, view] = 0.0, np.log(y.sum() / (~y).sum())
                continue
            slope, shift = platt(scores, y[places])
            calibration[group, view] = slope, shift
            if group > 0:
                known = agents[rows[places]] != part_of
                if calls is not None:
                    whose = np.where(known, FITTED, agent[rows[places]])
                    at = np.where(tasks[rows[places]] != part_of, FITTED, task[rows[places]])
                    left_out.append(LeftOut(slope * scores + shift, y[places], whose, at))
                if not _alike(y[places[known]]):
                    calibration[group, view, KNOWN] = platt(scores[known], y[places[known]])
            if calls is None and group > 0:
                names = ", ".join(tool for tool in tools if tools[tool] == group)
                records.append(_record(names, slope * scores + shift, y[places]))
    words, usual = _vocabulary(trajectories)
    arrays: dict[str, npt.NDArray[Any]] = {
        "weights": weights,
        "bias": bias,
        "calibration": calibration,
        "words": np.packbits(words),
    }
    met: dict[str, set[int]] = {}
    for trajectory, group in zip(trajectories, groups.tolist(), strict=True):
        met.setdefault(trajectory.agent, set()).add(group)
    known_to = {name: sorted(of) for name, of in sorted(met.items())}
    return Critic(arrays, tools, known_to, usual, records), left_out


def _left_out(x: Any, y: Flags, parts: Sequence[Flags], seed: int) -> tuple[Floats, Numbers, Numbers]:
    """Scores of the rows of each part by a fit on the rest, which rows they are, and of which part."""
    scores, rows, numbers = [np.zeros(0)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for number, part in enumerate(parts):
        if part.any() and not _alike(y[~part]):
            weights, bias = _regression(x[~part], y[~part], seed)
            rows.append(np.flatnonzero(part))
            scores.append(x[rows[-1]] @ weights.astype(np.float64) + bias)
            numbers.append(np.full(len(rows[-1]), number))
    return np.concatenate(scores), np.concatenate(rows), np.concatenate(numbers)


def _record(tools: str, logits: Floats, failed: Flags) -> FamilyScore:
    sure, said = np.abs(logits) >= np.log(CONFIDENCE / (1 - CONFIDENCE)), logits > 0
    return FamilyScore(
        tools,
        failure=int((sure & failed & said).sum()),
        missed=int((sure & failed & ~said).sum()),
        alarm=int((sure & ~failed & said).sum()),
        success=int((sure & ~failed & ~said).sum()),
        unsure=int((~sure).sum()),
    )


def _regression(x: Any, y: Flags, seed: int) -> tuple[npt.NDArray[np.float32], float]:
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise ModelUnavailable("fitting a critic needs: pip install 'fleetlore-server[backtest]'") from error
    # Only the columns in use: the solver's time goes with their number.
    used = np.unique(x.indices)
    model = LogisticRegression(C=1.0, solver="liblinear", random_state=seed).fit(x[:, used], y)
    weights = np.zeros(x.shape[1], np.float32)
    weights[used] = model.coef_[0]
    return weights, float(model.intercept_[0])


def _matrix(rows: Sequence[tuple[Indices, Values]]) -> Any:
    try:
        from scipy.sparse import csr_matrix
    except ImportError as error:
        raise ModelUnavailable("fitting a critic needs: pip install 'fleetlore-server[backtest]'") from error
    starts = np.concatenate([[0], np.cumsum([len(places) for places, _ in rows])])
    parts = np.concatenate([values for _, values in rows]), np.concatenate([places for places, _ in rows]), starts
    matrix = csr_matrix(parts, shape=(len(rows), 2**BITS))
    matrix.sum_duplicates()
    return matrix


def _vocabulary(trajectories: Sequence[Trajectory]) -> tuple[Flags, float]:
    """Which words are known, and the share of known words that all but a few sessions have."""
    words = [word_places(t) for t in trajectories]
    seen = np.zeros(2**WORD_BITS, np.int64)
    for places in words:
        seen[places] += 1
    known = seen >= min(KNOWN_FROM, len(words))
    shares = [float(known[places].mean()) if len(places) else 1.0 for places in words]
    return known, float(np.quantile(shares, STRANGE))


def _families(trajectories: Sequence[Trajectory], failed: Flags) -> dict[str, int]:
    """Tools that occur in one session are of one family; here is the number of each tool's, from 1, in the order of their names.

    A family with too few sessions, or whose sessions all ended alike, is not here.
    """
    parent: dict[str, str] = {}

    def root(tool: str) -> str:
        while parent[tool] != tool:
            parent[tool] = parent[parent[tool]]
            tool = parent[tool]
        return tool

    for trajectory in trajectories:
        tools = [step.tool for step in trajectory.calls]
        for tool in tools:
            parent.setdefault(tool, tool)
            first, second = sorted((root(tool), root(tools[0])))
            parent[second] = first
    ends: dict[str, list[bool]] = {}
    for trajectory, end in zip(trajectories, failed.tolist(), strict=True):
        if calls := trajectory.calls:
            ends.setdefault(root(calls[0].tool), []).append(end)
    large = sorted(name for name, of in ends.items() if len(of) >= LEAST and any(of) and not all(of))
    numbers = {name: number for number, name in enumerate(large, 1)}
    return {tool: numbers[root(tool)] for tool in sorted(parent) if root(tool) in numbers}


def _places(names: Sequence[str]) -> Numbers:
    """The place of each name in the order of their hashes."""
    order = {name: place for place, name in enumerate(sorted(set(names), key=lambda name: (stable_hash(name), name)))}
    return np.array([order[name] for name in names], np.int64)


def _balanced(groups: Numbers) -> Numbers:
    """The first `MOST` rows of each group."""
    return np.sort(np.concatenate([np.flatnonzero(groups == group)[:MOST] for group in np.unique(groups)]))


def _alike(failed: Flags) -> bool:
    return bool(failed.all() or not failed.any())
