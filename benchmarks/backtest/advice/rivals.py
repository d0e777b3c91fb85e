"""Score calls by what anybody would try first: how calls fail that were like this one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from benchmarks.backtest.scores import Bools, Floats
from fleetlore.calls.context import CallContext, text_of
from fleetlore.calls.features import Call as FeatureCall
from fleetlore.calls.features import Features, features
from fleetlore.errors import ModelUnavailable
from fleetlore.words import names_of
from models.backtest.heard import FAILED, Call, CallLog, Turn, plain_text
from models.backtest.report import mean

HASHED: Final = 2**18
MAX_SAID: Final = 300

_WORD = re.compile(r"\w+")
_NEEDED = "the rivals of advice need: pip install 'fleetlore-server[backtest]'"


class Calls:
    """All calls of some sessions that have a label: pseudo-calls and passing faults are left out."""

    def __init__(self, logs: Sequence[CallLog]) -> None:
        self.logs = logs
        self.turns = [turn for log in logs for turn in log.turns() if not turn.call.passes]
        self.failed: Bools = np.array([turn.call.failure is not None for turn in self.turns], bool)

    @property
    def base(self) -> float:
        """Share that failed."""
        return float(self.failed.mean()) if len(self.failed) else 0.5


# (train, test, seed) -> a score of each test call that grows with P(it fails).
Rival = Callable[[Calls, Calls, int], Floats]


def last_failed(train: Calls, test: Calls, seed: int) -> Floats:
    """The call before it failed."""
    return np.array([turn.after == FAILED for turn in test.turns], np.float64)


def same_call(train: Calls, test: Calls, seed: int) -> Floats:
    """How often the very same call failed; the base rate where it was never made."""
    return _rated(train, test, lambda call: [plain_text(call.text)])


def tool_first_word(train: Calls, test: Calls, seed: int) -> Floats:
    """How often calls of the tool with the same first word failed."""
    return _rated(train, test, lambda call: [found[0].casefold() if (found := _WORD.search(call.text)) else ""])


def tool_word(train: Calls, test: Calls, seed: int) -> Floats:
    """How often calls of the tool with each of its words failed, the mean over the words."""
    return _rated(train, test, lambda call: names_of(call.text))


def call_and_result_words(train: Calls, test: Calls, seed: int) -> Floats:
    """Logistic regression on words and pairs of words of the call and of the result before it, fitted on all of them.

    Raises:
        ModelUnavailable: the extra `[backtest]` is not installed.
    """
    try:
        from scipy.sparse import csr_matrix, hstack
        from sklearn.feature_extraction.text import HashingVectorizer
    except ImportError as error:
        raise ModelUnavailable(_NEEDED) from error
    hashed = HashingVectorizer(
        n_features=HASHED,
        ngram_range=(1, 2),
        token_pattern=r"[A-Za-z_0-9]+|[^\sA-Za-z_0-9]",
        alternate_sign=False,
        dtype=np.float32,
    )

    def matrix(turns: Sequence[Turn]) -> Any:
        states = [(turn.after == FAILED, turn.number == 0, turn.number == 1) for turn in turns]
        return hstack(
            [
                hashed.transform([f"{turn.call.tool} {turn.call.text}" for turn in turns]),
                hashed.transform([_last_result(turn) for turn in turns]),
                csr_matrix(np.array(states, np.float32).reshape(-1, 3)),
            ]
        ).tocsr()

    return _regressed(train, test, lambda calls: matrix(calls.turns), seed)


def own_features(train: Calls, test: Calls, seed: int) -> Floats:
    """Logistic regression on the features that the call model learns from, fitted on all of them.

    Raises:
        ModelUnavailable: the extra `[backtest]` is not installed.
    """
    try:
        from scipy.sparse import csr_matrix
    except ImportError as error:
        raise ModelUnavailable(_NEEDED) from error

    def matrix(calls: Calls) -> Any:
        rows = list(_features(calls.logs))
        starts = np.cumsum([0, *(len(row.ids) for row in rows)])
        ids = np.concatenate([row.ids for row in rows]).astype(np.int64) % HASHED
        found = csr_matrix((np.concatenate([row.values for row in rows]), ids, starts), shape=(len(rows), HASHED))
        found.sum_duplicates()
        return found

    return _regressed(train, test, matrix, seed)


RIVALS: dict[str, Rival] = {
    "last_failed": last_failed,
    "same_call": same_call,
    "tool_first_word": tool_first_word,
    "tool_word": tool_word,
    "words": call_and_result_words,
    "features": own_features,
}


def _rated(train: Calls, test: Calls, keys: Callable[[Call], Iterable[str]]) -> Floats:
    """Mean failure rate in training by tool and key, each pulled to the base rate by one call."""
    base = train.base
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for turn, failed in zip(train.turns, train.failed.tolist(), strict=True):
        for key in keys(turn.call):
            count = counts[turn.call.tool, key]
            count[0] += failed
            count[1] += 1

    def rate(call: Call) -> float:
        found = [counts.get((call.tool, key), (0, 0)) for key in keys(call)]
        return mean([(failed + base) / (total + 1) for failed, total in found]) or base

    return np.array([rate(turn.call) for turn in test.turns], np.float64)


def _regressed(train: Calls, test: Calls, matrix: Callable[[Calls], Any], seed: int) -> Floats:
    """Log odds of a logistic regression; the same for all where the training calls all ended alike."""
    if train.failed.all() or not train.failed.any() or not test.turns:
        return np.zeros(len(test.turns))
    from sklearn.linear_model import LogisticRegression

    known = matrix(train)
    used = np.unique(known.indices)  # the solver's time goes with the columns
    model = LogisticRegression(C=1.0, solver="liblinear", random_state=seed).fit(known[:, used], train.failed)
    return np.asarray(model.decision_function(matrix(test)[:, used]), np.float64)


def _features(logs: Iterable[CallLog]) -> Iterator[Features]:
    """Features of the calls that have a label, in their order."""
    for log in logs:
        context = CallContext(log.goal)
        for call in log.calls:
            text = text_of(call.text)
            if not call.pseudo and not call.passes:
                yield features(FeatureCall.made(call.tool, call.text), context)
            error_class = call.failure and call.failure.error_class
            context.record(call.tool, text, call.said, error_class, arguments=call.text)


def _last_result(turn: Turn) -> str:
    return "" if turn.last is None else f"{turn.after} {turn.last.said[:MAX_SAID]}"
