"""Say what else could be said in a session, learned from the same sessions.

nearest  the calls of the successful session whose goal is most like this one, at the start, a line each
usual    before a call, where an option of it is not the one that most sessions that ended well took
today    what fleetlore says: `fleetlore.advice`, after learning in memory by all stages
any      that a tool changes something, before its first call: names every tool, and says nothing
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from benchmarks.silent.cases import CONFIRM, Case, Made, is_option
from benchmarks.silent.decisive import Line
from fleetlore.stats.hashing import stable_hash
from fleetlore.stats.text_index import TextIndex
from models.backtest.heard import Told
from streams.offline.hear import hear
from streams.offline.memory_pipeline import run_logs

_HASHES: Final = 2.0**64


class Arm(Protocol):
    """Who says something in sessions."""

    def lines(self, case: Case) -> Iterable[Line]:
        """What is said in a session, in order."""
        ...


class Nearest:
    """The nearest successful trajectory."""

    def __init__(self, past: Sequence[Case]) -> None:
        self._index, self._well = TextIndex(), {case.logged.session: case for case in past if case.well}
        for session, case in self._well.items():
            self._index.put(session, case.logged.goal)

    def lines(self, case: Case) -> Iterator[Line]:
        for session, likeness in self._index.like(case.logged.goal, 1e-6, 1):
            for call in dict.fromkeys(map(call_text, self._well[session].calls)):
                yield Line(0, call, likeness, call)


class Usual:
    """The most frequent call of successes."""

    def __init__(self, past: Sequence[Case]) -> None:
        self._taken: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for case in past:
            if case.well:
                self._taken.update({key: self._taken[key] + Counter({each}) for key, each in _options(case.calls)})

    def lines(self, case: Case) -> Iterator[Line]:
        told: set[tuple[str, str]] = set()
        for place, call in enumerate(case.calls):
            for key, option in _options([call]):
                taken = self._taken.get(key)
                if not taken or key in told or call.looks:
                    continue
                [(usual, times)] = taken.most_common(1)
                if usual != option:
                    told.add(key)
                    make = f"{key[0]}({key[1]}={usual})"
                    said = f"`{make}`: so called in {times} of {taken.total()} that ended well."
                    yield Line(place, said, times / taken.total(), make)


class Every:
    """Each tool that changes something."""

    def lines(self, case: Case) -> Iterator[Line]:
        told: set[str] = set()
        for place, call in enumerate(case.calls):
            if not call.looks and call.tool not in told:
                told.add(call.tool)
                weight = stable_hash(f"{case.logged.session}/{call.tool}") / _HASHES
                yield Line(place, f"`{call.tool}` changes something.", weight)


class Heard:
    """What was said in each session; of one that nobody spoke to nothing."""

    def __init__(self, said: Mapping[str, Sequence[Line]]) -> None:
        self._said = said

    def lines(self, case: Case) -> Sequence[Line]:
        return self._said.get(case.logged.session, ())


def today(past: Sequence[Case], asking: Sequence[Case], seed: int) -> Heard:
    """What fleetlore says in sessions, having learned from others."""

    async def said() -> Heard:
        run = await run_logs([case.logged for case in past], seed=seed, learn=True)
        heard = await hear(run, [case.logged for case in asking])
        return Heard(
            {
                each.log.session: [
                    *_shown(0, each.start),
                    *(line for place, told in enumerate(each.before) for line in _shown(place, told)),
                    *(line for place, told in each.after.items() for line in _shown(place + 1, told)),
                ]
                for each in heard
            }
        )

    return asyncio.run(said())


def call_text(call: Made) -> str:
    """A call with its options; of what belongs to one session the argument's name alone."""
    said = (f"{name}={value}" if is_option(value) else name for name, value in call.arguments.items())
    return f"{call.tool}({', '.join(said)})"


def _shown(place: int, told: Told) -> Iterator[Line]:
    for shown in told.shown:
        for line in shown.text.splitlines():
            yield Line(place, line, 1.0, "" if shown.warns else line)


def _options(calls: Iterable[Made]) -> Iterator[tuple[tuple[str, str], str]]:
    for call in calls:
        for name, value in call.arguments.items():
            if is_option(value) and name != CONFIRM:
                yield (call.tool, name), str(value)
