"""Say whether hints help, from calls whose hint was shown or withheld at random.

The draw is made once a session and hint, and the first such call counts, because later ones depend on it. Calls of one
session are alike, so the counts are divided by the design effect of clusters (Kish 1965).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from fleetlore.wire.stats import newcombe
from fleetlore.words import count

__all__ = ["Measure", "Trial", "Uplift", "uplift"]

# Share of hints that is withheld until the log shows one (the default of `Fleet(holdout_share=…)`).
_HOLDOUT_SHARE = 0.05
# (z of 95 % confidence + z of 80 % power) squared: trials for a difference of rates (Fleiss 1981, equation 3.14).
_POWER = (1.96 + 0.84) ** 2
_DIFFERENCE = 0.1
_Z = 1.96


class Trial(NamedTuple):
    """The first call of a session for which a hint was drawn.

    `calls`: of the session. `success`: None if unknown. `source`: of a hint that follows from a failure before it.
    """

    session: str
    hint: str
    tool: str
    task: str
    shown: bool
    failed: bool
    calls: int
    success: bool | None
    source: str = ""


class Measure(NamedTuple):
    """A mean with the hint and without, and the 95 % interval of the difference. None if unknown."""

    shown: float | None
    withheld: float | None
    low: float | None
    high: float | None

    @property
    def is_found(self) -> bool:
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


class Uplift(NamedTuple):
    """The effect of some hints on the calls that failed, on the success of sessions, and on their calls.

    `shown`, `withheld`: trials on each side. `needed`: further sessions until a difference of 10 points would be seen.
    """

    sessions: int
    shown: int
    withheld: int
    failures: Measure
    success: Measure
    calls: Measure
    needed: int
    answer: str


_Side = Sequence[tuple[str, float]]  # session and value of each trial


def uplift(trials: Sequence[Trial], sessions: int | None = None) -> Uplift:
    """Compare trials with a hint to those without. `sessions`: their number, with those that have no trial."""
    met = len({each.session for each in trials})
    sides = [[each for each in trials if each.shown is side] for side in (True, False)]
    shown, withheld = sides
    of_shown, of_withheld = ([(each.session, float(each.failed)) for each in side] for side in sides)
    failures = _rates(of_shown, of_withheld)
    success = _rates(
        *([(each.session, float(each.success)) for each in side if each.success is not None] for side in sides)
    )
    calls = _means(*([(each.session, float(each.calls)) for each in side] for side in sides))
    needed = _sessions_needed(of_shown, of_withheld, met if sessions is None else sessions)
    return Uplift(met, len(shown), len(withheld), failures, success, calls, needed, _answer(failures, needed))


def _rates(shown: _Side, withheld: _Side) -> Measure:
    if not shown or not withheld:
        return Measure(_mean(shown), _mean(withheld), None, None)
    effect = _design_effect(shown, withheld)
    trials, others = (max(1.0, len(side) / effect) for side in (shown, withheld))
    rate, other = (_mean(side) or 0.0 for side in (shown, withheld))
    low, high = newcombe((trials, rate * trials), (others, other * others))
    return Measure(rate, other, low, high)


def _means(shown: _Side, withheld: _Side) -> Measure:
    with_hint, without = _mean(shown), _mean(withheld)
    fewest = min(map(_clusters, (shown, withheld)))
    if with_hint is None or without is None or fewest < 2:
        return Measure(with_hint, without, None, None)
    spread = _quantile(fewest - 1) * math.sqrt(_variance(shown, withheld))
    return Measure(with_hint, without, with_hint - without - spread, with_hint - without + spread)


def _design_effect(shown: _Side, withheld: _Side) -> float:
    sides = [side for side in (shown, withheld) if side]
    if all(_clusters(side) == len(side) for side in sides):
        return 1.0
    even = sum((rate := _mean(side) or 0.0) * (1 - rate) / len(side) for side in sides)
    if not even:  # trials of a side are equal, so those of one session may be one
        sizes = [Counter(session for session, _ in side).values() for side in sides]
        return max(sum(size * size for size in of_side) / sum(of_side) for of_side in sizes)
    inflated = (_quantile(min(map(_clusters, sides)) - 1) / _Z) ** 2
    return max(1.0, inflated * _variance(shown, withheld) / even)


def _variance(shown: _Side, withheld: _Side) -> float:
    """Sessions are drawn, not calls (linearised; Cochran 1977)."""
    off: defaultdict[str, float] = defaultdict(float)
    for side, sign in ((shown, 1.0), (withheld, -1.0)):
        mean = _mean(side) or 0.0
        for session, value in side:
            off[session] += sign * (value - mean) / len(side)
    return len(off) / max(1, len(off) - 1) * sum(each * each for each in off.values())


def _clusters(side: _Side) -> int:
    return len({session for session, _ in side})


def _mean(side: _Side) -> float | None:
    return sum(value for _, value in side) / len(side) if side else None


def _quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t (Abramowitz and Stegun, 26.7.5)."""
    nu = max(1, freedom)
    return _Z + (_Z**3 + _Z) / (4 * nu) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * nu * nu)


def _sessions_needed(shown: _Side, withheld: _Side, sessions: int) -> int:
    if not shown:
        return 0
    failed = (sum(value for _, value in (*shown, *withheld)) + 1) / (len(shown) + len(withheld) + 2)
    effect = _design_effect(shown, withheld)
    trials = len(withheld) / effect
    kept_back = trials or len(shown) * _HOLDOUT_SHARE / effect
    wanted = _POWER * failed * (1 - failed) * (1 + kept_back * effect / len(shown)) / _DIFFERENCE**2
    return max(0, math.ceil((wanted - trials) * sessions / kept_back))


def _answer(failures: Measure, needed: int) -> str:
    if failures.shown is None:
        return "Not known yet: no call of these sessions was given a hint."
    more = f"To see a difference of {100 * _DIFFERENCE:.0f} points takes about {count(needed, 'more session')}."
    if failures.withheld is None or failures.low is None or failures.high is None:
        return f"Not known yet: no hint was withheld for comparison. {more}"
    rates = (
        f"{failures.shown:.0%} of the calls with a hint failed, and {failures.withheld:.0%} of those from which it was "
        f"withheld at random"
    )
    between = f"95 % interval of the difference: {100 * failures.low:.0f} to {100 * failures.high:.0f} points"
    if failures.is_found:
        return f"{'Yes' if failures.high < 0 else 'No, it harms'}: {rates} ({between})."
    return f"Not known yet: {rates} ({between}). {more}" if needed else f"Hardly: {rates} ({between})."
