"""Predict P(a session fails) from what its agent did and saw so far. `models.judge.critic_fit` fits a critic.

One logistic regression for each family of tools (tools that share sessions) and each view (after one tool step, two,
more, and the complete session), over hashed words and the state of the steps (`models.judge.critic_features`).
Predicting needs numpy alone.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from fleetlore.errors import ConfigError
from fleetlore.wire.trajectory import Step, Trajectory, Verdict
from models.judge.critic_features import BITS, WORD_BITS, features, word_places
from models.judge.prefix import first_steps

NAME: Final = "critic-2"
# After one tool step, after two, after three or more, and on the complete session.
VIEWS: Final[tuple[int | None, ...]] = (1, 2, 3, None)
# Calibrations: for agents that were not fitted on, and for agents that were.
NEW, KNOWN = 0, 1
# Least confidence of a verdict.
CONFIDENCE: Final = 0.75
# Share of judged failures called a success above which it calls nothing a success: learning repeats a false success.
FALSE_SUCCESSES: Final = 0.25

Floats = npt.NDArray[np.float64]


class FamilyScore(NamedTuple):
    """Predictions for complete sessions of a family of tools whose agent, task or both were left out of the fit.

    Attributes:
        failure, missed: failed sessions that it called a failure, and a success.
        alarm, success: the same of successful sessions.
        unsure: sessions with less confidence than `CONFIDENCE`; they are in none of the other four.
    """

    tools: str
    failure: int
    missed: int
    alarm: int
    success: int
    unsure: int

    def allows(self, failed: bool) -> bool:
        """Whether verdicts of this label were right often enough, with few failures called a success."""
        if failed:
            return self.failure > 0 and self.failure >= CONFIDENCE * (self.failure + self.alarm)
        few = self.missed <= FALSE_SUCCESSES * (self.failure + self.missed)
        return few and self.success > 0 and self.success >= CONFIDENCE * (self.success + self.missed)


class Critic:
    """P(session fails).

    Args:
        arrays: `weights` (groups, views, 2**BITS), `bias` (groups, views) and `calibration` (groups, views, new or
            known agent, slope and shift), where group 0 is the fit of all families; `words`, a bit for each known word.
        tools: the group of each tool whose family has a fit of its own.
        agents: the groups in whose fit each agent has sessions.
        familiar_share: share of known words below which a session is unfamiliar.
        records: of each group but 0.
    """

    def __init__(
        self,
        arrays: Mapping[str, npt.NDArray[Any]],
        tools: Mapping[str, int],
        agents: Mapping[str, Sequence[int]],
        familiar_share: float,
        records: Sequence[FamilyScore],
    ) -> None:
        self._arrays = dict(arrays)
        self._tools = dict(tools)
        self._agents = dict(agents)
        self._familiar_share = familiar_share
        self.records = tuple(records)
        self._words = np.unpackbits(arrays["words"])
        digest = hashlib.sha256(self._header())
        for name in sorted(self._arrays):
            digest.update(np.ascontiguousarray(self._arrays[name]).tobytes())
        self.version = f"{NAME}-{digest.hexdigest()[:12]}"

    def failure_probability(self, trajectories: Sequence[Trajectory], calls: int | None) -> Floats:
        """P(fails) of each, after its first `calls` tool steps (None: of the complete session): (n,).

        A session with fewer tool steps is read as a whole.
        """
        if calls is not None and calls < 1:
            raise ValueError(f"calls is {calls}, but a session begins with its first")
        view = len(VIEWS) - 1 if calls is None else min(calls, len(VIEWS) - 1) - 1
        logits = np.zeros(len(trajectories))
        for row, trajectory in enumerate(trajectories):
            group = self.family(trajectory, calls)
            ((places, values),) = features(trajectory, (calls,))
            score = float(self._arrays["weights"][group, view, places].astype(np.float64) @ values)
            known = KNOWN if group in self._agents.get(trajectory.agent, ()) else NEW
            slope, shift = self._arrays["calibration"][group, view, known].tolist()
            logits[row] = slope * (score + float(self._arrays["bias"][group, view])) + shift
        return np.asarray(1 / (1 + np.exp(-np.clip(logits, -30, 30))), np.float64)

    def family(self, trajectory: Trajectory, calls: int | None) -> int:
        """The family of most of the first `calls` tool steps (None: of all); 0 if it has no fit."""
        return group_of(self._tools, first_steps(trajectory, calls))

    def familiar(self, trajectory: Trajectory) -> bool:
        """Whether it was fitted on sessions like this one: by most of its tools, and by its words."""
        calls, places = trajectory.calls, word_places(trajectory)
        if not calls or 2 * sum(step.tool in self._tools for step in calls) < len(calls):
            return False
        return not len(places) or float(self._words[places].mean()) >= self._familiar_share

    def record(self, trajectory: Trajectory) -> FamilyScore | None:
        """The score of the session's family of tools; None for a family without a fit."""
        group = self.family(trajectory, None)
        return self.records[group - 1] if group else None

    def to_bytes(self) -> bytes:
        """Safetensors with a JSON header."""
        from safetensors.numpy import save

        return bytes(save(self._arrays, {"critic": self._header().decode()}))

    @classmethod
    def from_bytes(cls, data: bytes) -> Critic:
        """The critic that `to_bytes` wrote.

        Raises:
            ConfigError: for anything else.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            arrays = load(data)
            metadata = orjson.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
            header = orjson.loads(metadata["critic"])
            name, tools, familiar_share = header["name"], dict(header["tools"]), float(header["usual"])
            agents = {str(agent): [int(group) for group in of] for agent, of in header["agents"].items()}
            records = [FamilyScore(*record) for record in header["records"]]
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"these bytes hold no critic: {error}") from None
        groups = 1 + len(records)
        shapes = {
            "weights": (groups, len(VIEWS), 2**BITS),
            "bias": (groups, len(VIEWS)),
            "calibration": (groups, len(VIEWS), 2, 2),
            "words": (2**WORD_BITS // 8,),
        }
        found = {name: array.shape for name, array in arrays.items()}
        if name != NAME or found != shapes or not {*tools.values()} <= {*range(1, groups)}:
            raise ConfigError("this critic was fitted by another version of fleetlore: fit it again")
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise ConfigError("this critic has weights that are no numbers")
        return cls(arrays, tools, agents, familiar_share, records)

    def _header(self) -> bytes:
        records = [list(record) for record in self.records]
        header = {
            "name": NAME,
            "tools": self._tools,
            "agents": self._agents,
            "usual": self._familiar_share,
            "records": records,
        }
        return orjson.dumps(header, option=orjson.OPT_SORT_KEYS)


def group_of(tools: Mapping[str, int], steps: Sequence[Step]) -> int:
    """The family of most of the tool steps; 0 if none is known."""
    found = Counter(tools[step.tool] for step in steps if step.role == "tool" and step.tool in tools)
    return min(found, key=lambda group: (-found[group], group)) if found else 0


class CriticJudge:
    """Judges complete sessions by the critic's calibrated probability.

    It abstains if the critic is less sure than `confidence`; if the session is unfamiliar by its tools or words, where
    the calibration does not hold; and if the critic's score on left-out sessions of these tools does not support the
    verdict (`FamilyScore.allows`): in customer service most failures look like successes.
    """

    audited = 1.0

    def __init__(self, critic: Critic, confidence: float = CONFIDENCE) -> None:
        if not 0.5 <= confidence <= 1:
            raise ValueError(f"a confidence is between 0.5 and 1, not {confidence}")
        self._critic = critic
        self._confidence = confidence
        self.version = f"{critic.version}@{confidence:g}"

    def judge(self, trajectory: Trajectory) -> Verdict | None:
        """The verdict, or None to abstain."""
        if trajectory.ending == "continued" or not self._critic.familiar(trajectory):
            return None
        success = 1 - float(self._critic.failure_probability([trajectory], None)[0])
        record = self._critic.record(trajectory)
        if max(success, 1 - success) < self._confidence or record is None or not record.allows(success < 0.5):
            return None
        return Verdict(
            label="success" if success > 0.5 else "failure", probability=success, source="critic", version=self.version
        )
