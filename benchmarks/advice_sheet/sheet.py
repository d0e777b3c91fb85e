"""Draw what is to be read, and write it as a sheet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.advice_sheet.verdicts import RUBRICS, SILENT, Reading
from fleetlore.advice.changes import item_tip
from fleetlore.advice.gate import tell
from fleetlore.advice.tool_facts import ToolFact, facts_of_tools
from fleetlore.calls.model import CallModel
from fleetlore.errors import ConfigError
from fleetlore.stats.hashing import stable_hash
from fleetlore.transcripts.read import read_sessions
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire.lore import MemoryItem, standing
from models.backtest.heard import Call, Heard
from models.backtest.report import split
from streams.offline.hear import hear
from streams.offline.memory_pipeline import OfflineRun, run_logs

SHARE = 0.2
# Calls before the one that is read, and after it.
BEFORE, AFTER = 3, 2
MAX_TEXT = 1200


@dataclass(frozen=True, slots=True)
class Sheet:
    """What a person reads (Markdown), and where the verdicts go."""

    reading: Reading
    text: str

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.reading.what}-{self.reading.source}-{self.reading.seed}"


def calls_sheet(folder: Path, seed: int, n: int) -> Sheet:
    """Failing calls of test sessions, drawn at random, one a session, with what was said before and after them.

    Raises:
        ConfigError: the logs cannot be read, or nothing failed in a test session.
    """
    train, test = split(read_sessions(folder), seed, SHARE)
    heard = asyncio.run(hear(_learned(train, seed), test))
    rng = Random(seed)
    failing = []
    for each in sorted(heard, key=lambda each: each.log.session):
        places = [
            turn.place for turn in each.log.turns() if turn.call.failure is not None and not turn.call.failure.transient
        ]
        if places:
            failing.append((each, rng.choice(places)))
    if not failing:
        raise ConfigError(f"no call failed in a test session of {folder}")
    drawn = rng.sample(failing, min(n, len(failing)))
    ids = {f"{each.log.session}#{place}": (each, place) for each, place in drawn}
    silent = {id: not (each.before[place].text or each.after[place].text) for id, (each, place) in ids.items()}
    entries = [_entry(number, id, _call_lines(*of)) for number, (id, of) in enumerate(ids.items(), 1)]
    reading = Reading("calls", folder.name, seed, {id: SILENT if silent[id] else "" for id in ids})
    return Sheet(reading, _text(reading, entries))


def items_sheet(folder: Path, seed: int, n: int) -> Sheet:
    """The best-ranked of what the training sessions taught and the gate lets through to anybody: memory items, and what
    the call model says of tools.

    Raises:
        ConfigError: the logs cannot be read, or taught nothing.
    """
    train, _ = split(read_sessions(folder), seed, SHARE)
    learned = _learned(train, seed)
    ranked: list[tuple[tuple[float, int, float, str], Iterable[str]]] = [
        (item.worth(), _item_lines(item)) for item in learned.items if tell(item_tip(item, "sheet"), ()) is not None
    ]
    facts = facts_of_tools(CallModel.from_bytes(learned.calls))
    ranked += [(_worth(fact), _fact_lines(fact)) for fact in facts]
    best = sorted(ranked, key=lambda each: each[0], reverse=True)[:n]
    if not best:
        raise ConfigError(f"the sessions of {folder} taught nothing")
    entries = [_entry(number, worth[-1], lines) for number, (worth, lines) in enumerate(best, 1)]
    reading = Reading("items", folder.name, seed, {worth[-1]: "" for worth, _ in best})
    return Sheet(reading, _text(reading, entries))


def _learned(train: list[LoggedSession], seed: int) -> OfflineRun:
    return asyncio.run(run_logs(train, seed=seed, learn=True))


def _call_lines(heard: Heard, place: int) -> Iterable[str]:
    log = heard.log
    yield _quoted("goal", log.goal)
    told = [heard.start.text, *(each.text for each in heard.before[:place])]
    told += [said.text for at, said in heard.after.items() if at < place]
    if earlier := [text for text in told if text]:
        yield _quoted("told earlier in the session", "\n".join(earlier))
    for call in log.calls[max(0, place - BEFORE) : place]:
        yield _shown("earlier", call)
    yield _quoted("**SAID BEFORE THE CALL**", heard.before[place].text or "(nothing)")
    yield _shown("**THE CALL**", log.calls[place])
    yield _quoted("**SAID AFTER IT**", heard.after[place].text or "(nothing)")
    for call in log.calls[place + 1 : place + 1 + AFTER]:
        yield _shown("what came then", call)


def _item_lines(item: MemoryItem) -> Iterable[str]:
    yield f"{item.kind}, backed by {item.agents} agents in {item.support} sessions; tool {item.tool or '-'}"
    yield _quoted("when", item.when)
    yield _quoted("says", f"{item.title}\n{item.content}")


def _worth(fact: ToolFact) -> tuple[float, int, float, str]:
    """As `MemoryItem.worth`: what it rests on, and an id without its text."""
    id = f"tool-{stable_hash(repr(fact)):016x}"
    return float(min(fact.agents, fact.sessions)), 3, standing(fact.agents, fact.sessions, 0, 0.0), id


def _fact_lines(fact: ToolFact) -> Iterable[str]:
    yield f"{fact.about} of {fact.tool}, backed by {fact.agents} agents in {fact.sessions} sessions"
    yield _quoted("says", fact.says)


def _shown(title: str, call: Call) -> str:
    ended = "worked" if call.failure is None else "FAILED"
    return _quoted(f"{title}: {call.tool}, {ended}", f"{_clipped(call.text)}\n→ {_clipped(call.said)}")


def _quoted(title: str, text: str) -> str:
    lines = "\n".join(f"    {line}" for line in _clipped(text, 4 * MAX_TEXT).splitlines())
    return f"{title}\n\n{lines}"


def _clipped(text: str, most: int = MAX_TEXT) -> str:
    return text if len(text) <= most else f"{text[:most]} […]"


def _entry(number: int, id: str, lines: Iterable[str]) -> str:
    return "\n\n".join((f"## {number}. {id}", *lines))


def _text(reading: Reading, entries: Iterable[str]) -> str:
    rubric = "\n".join(f"- **{word}**: {meaning}" for word, meaning in RUBRICS[reading.what].items())
    head = (
        f"# {reading.what.capitalize()} of {reading.source}, seed {reading.seed}\n\n"
        f"One verdict each, into the file of the same name:\n\n{rubric}"
    )
    return "\n\n".join((head, *entries)) + "\n"
