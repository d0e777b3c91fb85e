"""Decide whether a version of the call model may replace the published one, and when it warns of a call.

The candidate foresaw each call before it learned it (prequential evaluation, Dawid 1984). It must predict better than
the tool's failure rate in the same state of a session, and no worse than the published version on unseen calls. The
same calls show where the warning level does not hold.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Literal, NamedTuple

from fleetlore.calls.call import EndedCall
from fleetlore.calls.context import CallContext
from fleetlore.calls.document import Threshold
from fleetlore.calls.model import CallModel
from fleetlore.wire.adapter_manifest import State
from fleetlore.wire.stats import newcombe, wilson
from fleetlore.wire.trajectory import Trajectory
from models.calls.evidence import Fleet, Who

_Reason = Literal["better", "too_few", "no_better_than_rates", "no_gain", "worse_than_published", "forgets"]

# P(the call fails) that is worth a warning: of held-out calls above it, .78 to .99 failed, by tool.
_LEVEL = 0.7
# Calls of each arm before which warnings are not judged, and after which those without a sure effect end.
_LEAST_TRIALS = 20
_MANY_TRIALS = 200
# The newest calls that judge a candidate, and the fewest. Calls after a failure do not: any model foresees them.
_JUDGED = 2_000
_LEAST_JUDGED = 40
# Log-loss by which a candidate may be behind: chance makes as much with 40 calls.
_TOLERANCE = 0.02


class Foreseen(NamedTuple):
    number: int
    session: str
    position: int
    tool: str
    state: State
    fails: float
    failed: bool


class Trial:
    """Calls whose warning was shown or withheld, by principal. Senders say which, so none of several may decide."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        # By principal: calls (was the warning shown, did it fail).
        self._calls: defaultdict[str, Counter[tuple[bool, bool]]] = defaultdict(Counter)

    def add(self, who: Who, *, shown: bool, failed: bool) -> None:
        self._calls[who.agent][shown, failed] += 1

    @property
    def is_in_vain(self) -> bool:
        total = sum(self._calls.values(), Counter[tuple[bool, bool]]())
        if len(self._fleet.agents) <= 1 or not _in_vain(total):
            return _in_vain(total)
        return all(_in_vain(total - own) for own in self._calls.values())


def _in_vain(calls: Counter[tuple[bool, bool]]) -> bool:
    shown, withheld = ((calls[arm, True] + calls[arm, False], calls[arm, True]) for arm in (True, False))
    least = min(shown[0], withheld[0])
    if least < _LEAST_TRIALS:
        return False
    low, high = newcombe(withheld, shown)
    return high < 0 or (low <= 0 and least >= _MANY_TRIALS)


def thresholds(
    foreseen: Mapping[tuple[str, State], Iterable[Foreseen]], trials: Mapping[tuple[str, State], Trial]
) -> tuple[Threshold, ...]:
    """Thresholds of tools and states, unless warnings were in vain or surely fewer calls above the level failed."""
    found = (
        Threshold(*key, _LEVEL, sum(above), len(above))
        for key, calls in sorted(foreseen.items())
        if key not in trials or not trials[key].is_in_vain
        for above in [[call.failed for call in calls if call.fails >= _LEVEL]]
    )
    return tuple(each for each in found if not each.calls or wilson(each.failed, each.calls)[1] >= _LEVEL)


@dataclass(frozen=True, slots=True)
class GateReport:
    reason: _Reason
    figures: dict[str, float]

    @property
    def passed(self) -> bool:
        return self.reason == "better"


def judge_candidate(
    foreseen: Iterable[Foreseen], published: bytes | None = None, since: Iterable[Trajectory] = ()
) -> GateReport:
    judged = [each for each in foreseen if each.state != "after_failure"]
    figures = {"calls": float(len(judged))}
    if len(judged) < _LEAST_JUDGED:
        return GateReport("too_few", figures)
    figures["log_loss"] = _log_loss((each.fails, each.failed) for each in judged[-_JUDGED:])
    figures["log_loss_rates"] = _log_loss(_by_rate(judged)[-_JUDGED:])
    if figures["log_loss"] >= figures["log_loss_rates"]:
        return GateReport("no_better_than_rates", figures)
    if published is not None:
        new = _on_new(judged, published, since)
        if len(new) >= _LEAST_JUDGED:
            figures["log_loss_new"] = _log_loss((each.fails, each.failed) for each, _ in new)
            figures["log_loss_published"] = _log_loss((fails, each.failed) for each, fails in new)
            if figures["log_loss_new"] > figures["log_loss_published"] + _TOLERANCE:
                return GateReport("worse_than_published", figures)
    return GateReport("better", figures)


def _by_rate(calls: Sequence[Foreseen]) -> list[tuple[float, bool]]:
    failed: Counter[tuple[str, str]] = Counter()
    made: Counter[tuple[str, str]] = Counter()
    said = []
    for call in calls:
        key = call.tool, call.state
        said.append(((failed[key] + 0.5) / (made[key] + 1.0), call.failed))
        failed[key] += call.failed
        made[key] += 1
    return said


def _on_new(judged: Iterable[Foreseen], published: bytes, since: Iterable[Trajectory]) -> list[tuple[Foreseen, float]]:
    model = CallModel.from_bytes(published)
    foreseen = {(each.session, each.position): each for each in judged}
    new: list[tuple[Foreseen, float]] = []
    for session in since:
        context = CallContext(session.goal)
        for position, step in enumerate(session.calls):
            call = EndedCall(step)
            known = foreseen.get((session.id, position))
            outlook = model.outlook(call, context, session.place or context.place)
            if known is not None and outlook is not None:
                new.append((known, outlook.fails))
            context.record(call, step.answer, step.family)
    return new


def _log_loss(said: Iterable[tuple[float, bool]]) -> float:
    losses = [-log(max(1e-6, fails if failed else 1.0 - fails)) for fails, failed in said]
    return sum(losses) / len(losses)
