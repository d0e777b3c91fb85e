"""Count what advice shows in sessions of logs, by its source: `python -m benchmarks heard --data DIR`.

A fifth of the agents (whole models) and of the tasks of each log are held out by the seed. The fleet learns from the
other sessions through the stages in memory. Then agents make the calls of held-out sessions. Every line shown to them
is counted by its source (`fleetlore.advice.sources`) and by log.

*Right* is counted where the log can tell:

| source | right where |
| --- | --- |
| a warning of a call | the call failed; *kind*: the share of the failed calls that failed as stated |
| `looked up` | the session made it next |
| a loop caution | the next call had been made before |
| a line that brings names | the next call of the tool that worked has one of them, which the session had not seen |
| any other | it holds all words of that call which the session had not seen; where there are none, nothing is counted |

Calls of the log that no agent makes (`models.backtest.PSEUDO`) count neither as calls nor as failures, and
what is shown at them is counted apart. `--golden FILE` writes every shown text, one line each, sorted: session, call,
moment, source, text as JSON. Two trees that show the same write the same file.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, NamedTuple

import orjson
import typer

from benchmarks.command import command_app
from benchmarks.runs import read_runs
from fleetlore.advice.gate import Tip
from fleetlore.calls.call import KEYWORDS
from fleetlore.cli.shared import print_json
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire.stats import stable_hash
from fleetlore.words import names_of
from models.backtest import Call, CallLog, Heard, Told, Turn, plain_text, split
from streams.offline.memory_pipeline import hear, run_logs

SHARE = 0.2
ALL, NOTHING, LAST_ERROR = "all", "nothing", "last error repeated"
NAMES = {"one name": 1, "eight names": 8}
# The rival repeats the last error.
MOST_CHARACTERS = 120
_QUOTED = re.compile(r"`([^`]+)`")
_OPEN = re.compile(r"<[^<>]*>")

Moment = Literal["start", "before", "after"]


class Utterance(NamedTuple):
    """One thing shown. `place`: of the call that it was shown before or after; -1 at the start."""

    place: int
    moment: Moment
    shown: Tip


@dataclass(slots=True)
class Count:
    """The lines of one source.

    Attributes:
        right: how often it was right.
        of: how often the log can tell.
        kind_right: number of warnings of failed calls that named the right kind of failure.
        kinds: number of all warnings of failed calls.
        failing: number of failed calls before or after which it was shown.
        characters: number of characters of its texts.
    """

    shown: int = 0
    right: int = 0
    of: int = 0
    kind_right: int = 0
    kinds: int = 0
    failing: int = 0
    characters: int = 0


class Census:
    """Counts by source, of the sessions of some logs.

    Attributes:
        pseudo: things shown at calls that no agent makes.
    """

    def __init__(self) -> None:
        self.sessions = self.calls = self.failed = self.pseudo = 0
        self.counts: defaultdict[str, Count] = defaultdict(Count, {ALL: Count(), NOTHING: Count(), LAST_ERROR: Count()})

    def add(self, heard: Heard) -> None:
        log, turns = heard.log, {turn.place: turn for turn in heard.log.turns()}
        self.sessions += 1
        self.calls += len(turns)
        self.failed += sum(turn.call.failure is not None for turn in turns.values())
        at: defaultdict[int, set[str]] = defaultdict(set)
        for each in utterances(heard):
            if each.place >= 0 and each.place not in turns:
                self.pseudo += 1
                continue
            count = self.counts[each.shown.source]
            count.shown += 1
            count.characters += len(each.shown.text)
            self.counts[ALL].shown += 1
            at[each.place] |= {each.shown.source, ALL}
            self._judge(count, each, log, turns, heard)
        read = [heard.start, *(heard.before[place] for place in turns)]
        read += [told for place, told in heard.after.items() if place in turns]
        self.counts[ALL].characters += sum(len(told.text) for told in read)
        last: dict[str, Call] = {}
        for turn in turns.values():
            self._repeat(turn, last, at)
            last[turn.call.tool] = turn.call
            if turn.call.failure is not None:
                for source in at[turn.place]:
                    self.counts[source].failing += 1

    def _judge(self, count: Count, each: Utterance, log: CallLog, turns: dict[int, Turn], heard: Heard) -> None:
        if each.shown.chance is not None:
            _warned(count, turns[each.place].call, heard.before[each.place])
            return
        right = is_right(each, log)
        if right is not None:
            count.of += 1
            count.right += right

    def _repeat(self, turn: Turn, last: dict[str, Call], at: dict[int, set[str]]) -> None:
        """The rival: after a failure the next call of the tool is warned of the same failure."""
        before = last.get(turn.call.tool)
        if before is None or before.kind is None:
            return
        count = self.counts[LAST_ERROR]
        count.shown += 1
        count.characters += min(len(before.said), MOST_CHARACTERS)
        at[turn.place].add(LAST_ERROR)
        count.of += 1
        if (came := turn.call.kind) is not None:
            count.right += 1
            count.kinds += 1
            count.kind_right += came.kind == before.kind.kind

    def report(self) -> dict[str, Any]:
        """Figures by source, the one that shows most first."""
        order = sorted(self.counts, key=lambda source: (-self.counts[source].shown, source))
        return {
            "sessions": self.sessions,
            "calls": self.calls,
            "failed": self.failed,
            "shown_at_pseudo_calls": self.pseudo,
            "sources": {source: self._figures(self.counts[source]) for source in order},
        }

    def _figures(self, count: Count) -> dict[str, Any]:
        return {
            "shown": count.shown,
            "shown_per_1000": _ratio(1000 * count.shown, self.sessions),
            "right": _ratio(count.right, count.of),
            "right_of": count.of,
            "kind_right": _ratio(count.kind_right, count.kinds),
            "kind_right_of": count.kinds,
            "failures_shown": _ratio(count.failing, self.failed),
            "characters_per_session": _ratio(count.characters, self.sessions),
        }


def main(
    data: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Logged sessions of several sources.")],
    sessions: Annotated[int, typer.Option(min=1, help="Held-out sessions at the most.")] = 3000,
    seed: Annotated[int, typer.Option(help="By which agents, tasks and sessions are drawn.")] = 0,
    golden: Annotated[Path | None, typer.Option(dir_okay=False, help="Write all that was shown, a line each.")] = None,
    one_name: Annotated[
        bool, typer.Option("--one-name", help="Give all agents that are learned from one name; beside it eight.")
    ] = False,
) -> None:
    """Count what advice shows in held-out sessions, by its source and by log, and how often it is right."""
    began = time.process_time()
    train, test = split(read_runs(data), seed, SHARE)
    Random(seed).shuffle(test)
    pasts = {name: renamed(train, count) for name, count in NAMES.items()} if one_name else {"as logged": train}
    heard: dict[str, list[Heard]] = {}
    for name, past in pasts.items():
        learned = asyncio.run(run_logs(past, seed=seed, learn=True))
        heard[name] = asyncio.run(hear(learned, test[:sessions]))
    first = next(iter(heard))
    found = {"seed": seed, "learned_from": len(train), "agents_named": first, **census(heard[first])}
    if one_name:
        found["failures_shown"] = {name: _failures_shown(census(each)) for name, each in heard.items()}
    if golden is not None:
        golden.write_text("".join(sorted(lines(heard[first]))))
    found["cpu_seconds"] = round(time.process_time() - began, 1)
    print_json(found)


def renamed(past: Sequence[LoggedSession], names: int) -> list[LoggedSession]:
    """The sessions under so many agents' names, drawn by session: as one agent in so many processes."""
    return [replace(each, agent=f"agent-{stable_hash(each.session) % names}") for each in past]


def census(heard: Iterable[Heard]) -> dict[str, Any]:
    """The figures of all sessions, and in `logs` by log."""
    every, by_log = Census(), defaultdict[str, Census](Census)
    for each in heard:
        every.add(each)
        by_log[each.log.source].add(each)
    return {**every.report(), "logs": {log: by_log[log].report() for log in sorted(by_log)}}


def utterances(heard: Heard) -> Iterator[Utterance]:
    yield from (Utterance(-1, "start", shown) for shown in heard.start.shown)
    for place, told in enumerate(heard.before):
        yield from (Utterance(place, "before", shown) for shown in told.shown)
        if place in heard.after:
            yield from (Utterance(place, "after", shown) for shown in heard.after[place].shown)


def lines(heard: Iterable[Heard]) -> Iterator[str]:
    for each in heard:
        for place, moment, shown in utterances(each):
            text = orjson.dumps(shown.text).decode()
            yield f"{each.log.session}\t{max(place, 0):04}\t{moment}\t{shown.source}\t{text}\n"


def is_right(each: Utterance, log: CallLog) -> bool | None:
    """Whether the log bears out what was shown, by the table of this module. The result is None if the log cannot
    tell."""
    come = log.calls[each.place + (each.moment == "after") :] if each.place >= 0 else log.calls
    came = log.calls[: len(log.calls) - len(come)]
    calls = [call for call in come if not call.pseudo]
    if each.shown.source == "looked up":
        return _makes(calls[0], each.shown.text) if calls else None
    if each.shown.source == "loop":
        return plain_text(calls[0].text) in {plain_text(call.text) for call in came} if calls else None
    tool = log.calls[each.place].tool if each.place >= 0 else None
    worked = next((call for call in calls if call.failure is None and tool in (None, call.tool)), None)
    if worked is None:
        return None
    new = names_of(worked.text) - names_of(log.goal) - KEYWORDS
    new = new.difference(*(names_of(f"{call.before}\n{call.text}\n{call.said}") for call in came))
    if not new:
        return None
    if each.shown.brings:
        return not new.isdisjoint(names_of(" ".join(each.shown.brings)))
    return new <= names_of(each.shown.text)


def _warned(count: Count, call: Call, told: Told) -> None:
    count.of += 1
    if call.kind is not None:
        count.right += 1
        count.kinds += 1
        count.kind_right += told.named is not None and told.named.kind == call.kind.kind


def _makes(call: Call, text: str) -> bool:
    """Whether a call is one that a text quotes: `DESC <name>`, `find_user(<email>)`, `other_tool with this`."""
    made = plain_text(f"{call.tool} {call.text}")
    for quoted in _QUOTED.findall(text):
        if quoted.partition("(")[0] == call.tool:
            return True
        pattern = ".+".join(map(re.escape, _OPEN.split(plain_text(quoted))))
        if re.fullmatch(f"(?:{re.escape(call.tool.casefold())} )?{pattern}", made):
            return True
    return False


def _failures_shown(found: dict[str, Any]) -> dict[str, float | None]:
    every = {ALL: found} | found["logs"]
    return {log: report["sources"][ALL]["failures_shown"] for log, report in every.items()}


def _ratio(of: float, number: int) -> float | None:
    return round(of / number, 4) if number else None


app = command_app(main)
