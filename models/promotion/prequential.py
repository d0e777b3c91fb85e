"""Collect evidence that the learner beats the running version, from every new session before it is learned (Dawid
1984).

Both predict the steps of a session that neither has met; then the learner learns it. Its gain in squared error is one
bet. The null hypothesis: *given all that came before, the learner's predictions of the next session are on average no
better than the running version's*. It is about the learner's whole course and not about one candidate, so candidates
may depend on one another and be checked at any time: the probability that the wealth ever reaches 1 / alpha stays at
most alpha (Ville). The wealth restarts at 1 with each published version that learning begins from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.data.dataset import Example
from models.data.sample_weights import shares
from models.promotion.e_process import Wealth
from models.promotion.metrics import Predictions


class Prequential:
    """One course of learning against one running version.

    Args:
        session_gain: most squared error that one session may gain or lose. A small range keeps a few odd or poisoned
            sessions from deciding, and shows a small gain sooner.
        log_evidence: of bets before, if it goes on from some.
    """

    def __init__(self, session_gain: float, log_evidence: float = 0.0) -> None:
        self.session_gain = session_gain
        self.sessions = 0
        self._wealth = Wealth(log_evidence)
        self._won = 0.0
        self._weight = 0.0

    def observe(self, examples: Sequence[Example], learner: Predictions, running: Predictions) -> None:
        """Bet on new sessions, predicted by both before the learner had any of them.

        Which sessions count, and how much, must not depend on their content. No agent has more than its share of the
        sessions that arrive together (`models.data.sample_weights.shares`).
        """
        gains = learner.by_session(running.squared_error - learner.squared_error)
        if not len(gains):
            return
        order = list({e.session: e.agent for e in examples}.values())
        agents = [order[number] for number in np.unique(learner.sessions).tolist()]
        bets = np.clip(gains / self.session_gain, -1, 1)
        weights = np.array(shares(agents))
        self._wealth.bet((weights * bets).tolist())
        self.sessions += len(bets)
        self._won += float(weights @ bets)
        self._weight += float(weights.sum())

    @property
    def log_evidence(self) -> float:
        """Log of the wealth."""
        return self._wealth.log

    @property
    def gain(self) -> float:
        """Mean clipped gain of a session in squared error; 0 without one."""
        return self.session_gain * self._won / self._weight if self._weight else 0.0
