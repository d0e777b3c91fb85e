"""Define what an agent remembers in a world of logs: nothing, its own log, or what others of its fleet did, in several
ways.

A memory learns from the fleet's sessions. An agent asks it about its task and all its proposals before its first call;
some memories say more while the session goes on. The fleet's own are in `benchmarks.evaluate.fleet`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import exp, log
from types import TracebackType
from typing import Any, Self

import numpy as np

from benchmarks.evaluate.recall import Note, Recall
from benchmarks.evaluate.world import LoggedTask, Reply
from fleetlore.errors import ModelUnavailable
from fleetlore.recall.encoder import StaticEncoder, Vectors
from fleetlore.transcripts.session import LoggedSession
from fleetlore.words import names_of
from models.backtest import Call
from streams.offline.memory_pipeline import call_log

# Stated chance of a failure that is certain: an agent may misread it.
SURE = 0.98
MAX_ERROR = 120
EPISODES = 16
HASHED = 2**18


class Attended:
    """A session of an agent that has this memory.

    Attributes:
        recall: everything that it has read so far.
    """

    def __init__(self, recall: Recall) -> None:
        self.recall = recall

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """The session is over."""

    async def took(self, text: str, reply: Reply) -> bool:
        """A call was made that did not solve the task. Returns whether something was told then."""
        return False


class Memory:
    """Remembers nothing; the others extend it.

    Attributes:
        of_order: what it knows depends on the order of the past, not on its set alone.
        in_session: it says something while a session goes on.
    """

    of_order = False
    in_session = False

    async def learn(self, past: Sequence[LoggedSession]) -> None:
        """Take in sessions of the fleet, after those before."""

    def recall(self, task: LoggedTask) -> Recall:
        """The recall for a task and each of its proposals before the first call."""
        return Recall()

    def attend(self, task: LoggedTask, recall: Recall, id: str) -> Attended:
        return Attended(recall)


class OwnLog(Memory):
    """The session's own log, and nothing of other sessions."""

    in_session = True

    def attend(self, task: LoggedTask, recall: Recall, id: str) -> Attended:
        return _Remembering(recall)


class _Remembering(Attended):
    async def took(self, text: str, reply: Reply) -> bool:
        self.recall = Recall([*self.recall.notes, Note(line_of(reply.call))], self.recall.risks)
        return True


class Perfect(Memory):
    """Knows which calls fail: the upper bound of foresight."""

    def recall(self, task: LoggedTask) -> Recall:
        return Recall(risks=[SURE if each.call.failure is not None else 0.0 for each in task.replies.values()])


class Counts(Memory):
    """How often calls with each of its names failed and worked: naive Bayes."""

    def __init__(self) -> None:
        self._calls = [0, 0]
        self._named: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])

    async def learn(self, past: Sequence[LoggedSession]) -> None:
        for session in past:
            for call in _calls(session):
                if not call.passes:
                    failed = call.failure is not None
                    self._calls[failed] += 1
                    for name in names_of(call.text):
                        self._named[name][failed] += 1

    def recall(self, task: LoggedTask) -> Recall:
        return Recall(risks=[self._risk(text) for text in task.replies])

    def _risk(self, text: str) -> float:
        worked, failed = (each + 1 for each in self._calls)
        logit = log(failed / worked)
        for name in names_of(text):
            if name in self._named:
                ok, bad = self._named[name]
                logit += log((bad + 1) / (failed + 1)) - log((ok + 1) / (worked + 1))
        return 1 / (1 + exp(-max(-30.0, min(30.0, logit))))


class Regression(Memory):
    """Logistic regression on words and pairs of words of the call, the goal and the place, fitted on all calls anew.

    Raises:
        ModelUnavailable: scikit-learn is not installed.
    """

    def __init__(self) -> None:
        try:
            from sklearn.feature_extraction.text import HashingVectorizer
        except ImportError as error:
            raise ModelUnavailable("the arm LR needs: pip install scikit-learn") from error
        self._hashed = HashingVectorizer(
            n_features=HASHED,
            ngram_range=(1, 2),
            token_pattern=r"[A-Za-z_0-9]+|[^\sA-Za-z_0-9]",
            alternate_sign=False,
            dtype=np.float32,
        )
        self._texts: list[str] = []
        self._failed: list[bool] = []
        self._model: Any = None
        self._used: Any = None

    async def learn(self, past: Sequence[LoggedSession]) -> None:
        from sklearn.linear_model import LogisticRegression

        for session in past:
            for call in _calls(session):
                if not call.passes:
                    self._texts.append(_described(call.text, session.goal, session.place))
                    self._failed.append(call.failure is not None)
        if len(set(self._failed)) < 2:
            return
        known = self._hashed.transform(self._texts)
        self._used = np.unique(known.indices)  # the solver's time goes with the columns
        self._model = LogisticRegression(C=1.0, solver="liblinear", random_state=0)
        self._model.fit(known[:, self._used], self._failed)

    def recall(self, task: LoggedTask) -> Recall:
        if self._model is None:
            return Recall()
        asked = self._hashed.transform([_described(text, task.goal, task.place) for text in task.replies])
        return Recall(risks=self._model.predict_proba(asked[:, self._used])[:, 1].tolist())


class RawEpisodes(Memory):
    """The sessions themselves: the one with the nearest goal, the nearest call to each proposal, then more sessions.

    They are of the same place if the fleet was there. Nearness is the cosine of our static encoder.
    """

    def __init__(self, encoder: StaticEncoder) -> None:
        self._encoder = encoder
        self._goals: defaultdict[str, dict[str, list[str]]] = defaultdict(dict)
        self._calls: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._vectors: dict[tuple[str, str], tuple[list[str], Vectors]] = {}

    async def learn(self, past: Sequence[LoggedSession]) -> None:
        self._vectors.clear()
        for session in past:
            lines = [line_of(call) for call in _calls(session)]
            if not lines:
                continue
            lines.append(f"The session {'succeeded' if session.outcome == 'success' else 'failed'}.")
            for place in {session.place, ""}:
                self._goals[place].setdefault(session.goal, []).append("\n".join(dict.fromkeys(lines)))
                for call in _calls(session):
                    self._calls[place].setdefault(call.text, line_of(call))

    def recall(self, task: LoggedTask) -> Recall:
        place = task.place if task.place in self._goals else ""
        if not self._goals[place]:
            return Recall()
        episodes = [
            Note(text)
            for goal in self._nearest("goals", place, [task.goal], EPISODES)[0]
            for text in self._goals[place][goal][:1]
        ]
        calls = [
            Note(self._calls[place][nearest[0]]) for nearest in self._nearest("calls", place, list(task.replies), 1)
        ]
        return Recall([*episodes[:1], *calls, *episodes[1:]])

    def _nearest(self, what: str, place: str, texts: Sequence[str], most: int) -> list[list[str]]:
        known = self._vectors.get((what, place))
        if known is None:
            names = list((self._goals if what == "goals" else self._calls)[place])
            known = self._vectors[what, place] = names, self._encoder.encode(names)
        names, vectors = known
        near = self._encoder.encode(texts) @ vectors.T
        return [[names[each] for each in np.argsort(-row, kind="stable")[:most]] for row in near]


def line_of(call: Call) -> str:
    said = "ok" if call.failure is None else f"error {' '.join(call.said.split())[:MAX_ERROR]}"
    return f"{call.tool}({' '.join(call.text.split())}) -> {said}"


def _described(text: str, goal: str, place: str) -> str:
    return f"{text} GOAL {goal} PLACE {place}"


def _calls(session: LoggedSession) -> Iterable[Call]:
    return (call for call in call_log(session).calls if not call.pseudo)
