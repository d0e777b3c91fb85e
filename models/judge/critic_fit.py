"""Fit a critic on logged sessions.

The model is linear because boosted trees over the same features were worse on new agents and tasks. Each family of
tools has a fit of its own because one fit for all takes its idea of failure from the families with the most sessions.

Scores are calibrated on sessions whose agents, tasks or both were left out, since a critic is for new agents on new
tasks. One slope serves all of these: with ten agents in a log, a slope for new agents alone follows whichever agents
chance left out. A known agent has a slope of its own, from the sessions whose task alone was left out. Tools of no
known family are scored by a fit on all families, calibrated on families that were left out; it says little more than
how often sessions fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fleetlore.errors import ConfigError, ModelUnavailable
from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.trajectory import Trajectory
from models.judge.calibration import Flags, platt
from models.judge.critic import CONFIDENCE, KNOWN, VIEWS, Critic, FamilyScore, Floats, group_of
from models.judge.critic_features import BITS, WORD_BITS, Indices, Values, features, word_places
from models.judge.prefix import first_calls

# A family with fewer sessions has no fit of its own; the fit of all takes only the first `MOST` of a family.
LEAST: Final = 100
MOST: Final = 1500
# Agents and tasks are divided into this many parts; each is left out once.
PARTS: Final = 3
# A word is known if this many sessions had it; a session is unfamiliar with fewer known words than 99 % of those
# fitted.
KNOWN_FROM: Final = 5
UNFAMILIAR: Final = 0.01

Numbers = npt.NDArray[np.int64]


# In `LeftOut`: the fit knew this agent or task.
FITTED: Final = -1


class LeftOut(NamedTuple):
    """Predictions for n sessions by fits without them.

    Attributes:
        logits: calibrated log odds of failure.
        agents, tasks: numbers of those left out of the fit; `FITTED` where the fit knew them.
    """

    logits: Floats
    failed: Flags
    agents: Numbers
    tasks: Numbers


class _Sessions(NamedTuple):
    """What a fit knows of n sessions besides their features; agents and tasks are numbered in the order of their
    hashes.
    """

    failed: Flags
    groups: Numbers
    agents: Numbers
    tasks: Numbers

    def at(self, rows: Numbers) -> _Sessions:
        return _Sessions(self.failed[rows], self.groups[rows], self.agents[rows], self.tasks[rows])


class _Fit(NamedTuple):
    """Regression and calibration (new or known agent, slope and shift) of one group and view."""

    weights: npt.NDArray[np.float32]
    bias: float
    calibration: Floats
    left_out: LeftOut


def fit(
    trajectories: Sequence[Trajectory], failed: Sequence[bool] | Flags, seed: int = 0
) -> tuple[Critic, list[LeftOut]]:
    """Fit a critic on sessions with a known end; the same sessions in the same order give the same critic.

    Returns:
        The critic, and the predictions for the sessions left out, which show how it does on new agents and tasks.

    Raises:
        ConfigError: none of the sessions failed, or all did.
        ModelUnavailable: the extra `[backtest]` is not installed.
    """
    failed = np.asarray(failed, bool)
    if len(failed) != len(trajectories) or _alike(failed):
        raise ConfigError("a critic needs sessions that failed and sessions that did not")
    tools = _families(trajectories, failed)
    groups = np.array([group_of(tools, t.steps) for t in trajectories], np.int64)
    # Numbered by hash, so that neighbours in a list of names are not left out together.
    agents, tasks = _places([t.agent for t in trajectories]), _places([t.task or t.goal for t in trajectories])
    sessions = _Sessions(failed, groups, agents, tasks)
    shape = max(tools.values(), default=0) + 1, len(VIEWS)
    words, familiar_share = _vocabulary(trajectories)
    arrays: dict[str, npt.NDArray[Any]] = {
        "weights": np.zeros((*shape, 2**BITS), np.float16),
        "bias": np.zeros(shape, np.float32),
        "calibration": np.zeros((*shape, 2, 2), np.float32),
        "words": np.packbits(words),
    }
    records: list[FamilyScore] = []
    left_out: list[LeftOut] = []
    vectors = [features(t, VIEWS) for t in trajectories]
    for view, calls in enumerate(VIEWS):
        running = np.array([calls is None or first_calls(t, calls) is not None for t in trajectories])
        for group in range(shape[0]):
            rows = _rows(sessions, group, running)
            found = _fit_group(_matrix([vectors[row][view] for row in rows]), sessions.at(rows), group, seed)
            arrays["weights"][group, view] = found.weights
            arrays["bias"][group, view] = found.bias
            arrays["calibration"][group, view] = found.calibration
            if group > 0 and calls is not None:
                left_out.append(found.left_out)
            elif group > 0:
                family = ", ".join(tool for tool in tools if tools[tool] == group)
                records.append(_record(family, found.left_out.logits, found.left_out.failed))
    return Critic(arrays, tools, _groups_of_agents(trajectories, groups), familiar_share, records), left_out


def _rows(sessions: _Sessions, group: int, running: Flags) -> Numbers:
    """Sessions of a group (0: of all, balanced), without those that ended earlier unless the rest then ended alike."""
    rows = _balanced(sessions.groups) if group == 0 else np.flatnonzero(sessions.groups == group)
    still = rows[running[rows]]
    return rows if _alike(sessions.failed[still]) else still


def _fit_group(x: Any, sessions: _Sessions, group: int, seed: int) -> _Fit:
    """Fit one group, and calibrate it on fits that left out a part: families for group 0, else agents and tasks."""
    y, agents, tasks = sessions.failed, sessions.agents % PARTS, sessions.tasks % PARTS
    weights, bias = _regression(x, y, seed)
    if group == 0:
        parts = [sessions.groups == each for each in np.unique(sessions.groups)]
    else:
        parts = [(agents == part) | (tasks == part) for part in range(PARTS)]
    scores, rows, part_of = _left_out(x, y, parts, seed)
    if group == 0 and not len(rows):
        # No other family was left to try it on: all that it knows of others is how often sessions fail.
        slope, shift = 0.0, float(np.log(y.sum() / (~y).sum()))
    else:
        slope, shift = platt(scores, y[rows])
    calibration = np.array([(slope, shift)] * 2)
    known_agent, known_task = agents[rows] != part_of, tasks[rows] != part_of
    if group > 0 and not _alike(y[rows][known_agent]):
        calibration[KNOWN] = platt(scores[known_agent], y[rows][known_agent])
    left_out = LeftOut(
        slope * scores + shift,
        y[rows],
        np.where(known_agent, FITTED, sessions.agents[rows]),
        np.where(known_task, FITTED, sessions.tasks[rows]),
    )
    return _Fit(weights, bias, calibration, left_out)


def _groups_of_agents(trajectories: Sequence[Trajectory], groups: Numbers) -> dict[str, list[int]]:
    """The groups in which each agent has sessions."""
    met: dict[str, set[int]] = {}
    for trajectory, group in zip(trajectories, groups.tolist(), strict=True):
        met.setdefault(trajectory.agent, set()).add(group)
    return {name: sorted(found) for name, found in sorted(met.items())}


def _left_out(x: Any, y: Flags, parts: Sequence[Flags], seed: int) -> tuple[Floats, Numbers, Numbers]:
    """Scores of each part by a fit on the rest, with the rows and the part of each score."""
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
    """Known words, and the share of known words that all but a few sessions have."""
    words = [word_places(t) for t in trajectories]
    seen = np.zeros(2**WORD_BITS, np.int64)
    for places in words:
        seen[places] += 1
    known = seen >= min(KNOWN_FROM, len(words))
    shares = [float(known[places].mean()) if len(places) else 1.0 for places in words]
    return known, float(np.quantile(shares, UNFAMILIAR))


def _families(trajectories: Sequence[Trajectory], failed: Flags) -> dict[str, int]:
    """The family number of each tool, from 1 in the order of names; tools that share a session are one family.

    A family with too few sessions, or whose sessions all ended alike, is left out.
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
