"""Report what agents of logged sessions would have been shown, and how right it would have been."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fleetlore.calls.model import CallModel
from fleetlore.fingerprint.fingerprint import Failure
from fleetlore.wire.lore import MemoryItem, Pattern
from models.backtest.heard import CallLog, Heard, Turn
from models.backtest.hearing import Told
from models.backtest.splitting import slices_of
from models.backtest.ways_out import hit_rate, mean, ways_out

__all__ = ["Learned", "advice_rows", "known_errors"]

# A call, and what was shown before it.
_Asked = tuple[Turn, Told]


@dataclass(frozen=True, slots=True)
class Learned:
    """What the pipeline made of the training sessions; `now` is event time in seconds at their end.

    `calls`: the version of the call model that was learned from them; None for none.
    """

    patterns: Sequence[Pattern]
    items: Sequence[MemoryItem]
    now: float
    calls: CallModel | None = None


def advice_rows(train: Sequence[CallLog], heard: Sequence[Heard]) -> dict[str, dict[str, dict[str, Any]]]:
    """By source and slice, what `advice_row` says of the test sessions in it."""
    found: dict[str, dict[str, list[Heard]]] = defaultdict(lambda: defaultdict(list))
    for each, slice_ in zip(heard, slices_of(train, [each.log for each in heard]), strict=True):
        found[each.log.source][slice_].append(each)
    return {
        source: {slice_: advice_row(slices[slice_], asked(slices[slice_])) for slice_ in sorted(slices)}
        for source, slices in sorted(found.items())
    }


def asked(heard: Sequence[Heard]) -> list[_Asked]:
    """The calls of some sessions that have a label: pseudo-calls, and failures that pass by themselves, have none."""
    return [(turn, each.before[turn.place]) for each in heard for turn in each.log.turns() if not turn.call.passes]


def advice_row(heard: Sequence[Heard], calls: Sequence[_Asked]) -> dict[str, Any]:
    """Figures of what was shown in some sessions, over some of their calls; None where undefined.

    calls; failed, warned: shares of them. fail_warned, fail_unwarned: P(fails) of the calls that were warned of, and of
    the others. way_out_said: share of the ways out before or after which something was said. way_out: share of these
    that hold the way out. chars_call, chars_session: characters before a call, and in a session.
    """
    failed = [turn.call.failure is not None for turn, _ in calls]
    warned = [told.warned for _, told in calls]
    pairs = list(zip(failed, warned, strict=True))
    outs = [out for each in heard for out in ways_out(each)]
    return {
        "calls": len(calls),
        "failed": mean(failed),
        "warned": mean(warned),
        "fail_warned": mean([failure for failure, warning in pairs if warning]),
        "fail_unwarned": mean([failure for failure, warning in pairs if not warning]),
        "way_out_said": mean([bool(out.told) for out in outs]),
        "way_out": hit_rate(outs),
        "chars_call": mean([len(told.text) for _, told in calls]),
        "chars_session": mean([each.characters for each in heard]),
    }


def known_errors(train: Sequence[CallLog], test: Sequence[CallLog]) -> dict[str, dict[str, float | None]]:
    """By source and level of the pattern: the share of failed calls whose error another agent met in training."""
    agents: dict[str, set[str]] = defaultdict(set)
    for log in train:
        for failure in _failures(log):
            for id in (failure.family, failure.class_, failure.exact):
                agents[id].add(log.agent)

    def known(logs: Sequence[CallLog], id_of: Callable[[Failure], str]) -> float | None:
        return mean([bool(agents[id_of(failure)] - {log.agent}) for log in logs for failure in _failures(log)])

    return {
        source: {
            "family": known(logs, lambda failure: failure.family),
            "class": known(logs, lambda failure: failure.class_),
            "exact": known(logs, lambda failure: failure.exact),
        }
        for source in sorted({log.source for log in test})
        if (logs := [log for log in test if log.source == source])
    }


def _failures(log: CallLog) -> list[Failure]:
    return [call.failure for call in log.calls if call.failure is not None]
