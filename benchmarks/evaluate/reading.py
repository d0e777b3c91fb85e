"""State how an agent reads advice on past calls: one rule for every memory, at the level of names.

An agent has proposals and chooses among them by its own weights. Advice changes the weight of each:

* If it states a chance p that the proposal fails: × (1 - p).
* If it names the proposal as the look-up to make next: × 2.
* If it reports that the very same call failed: × 0.1. If it was the last call of a session that succeeded: × 20.
* If errors named one of its names more often than working calls held it: × 0.1. Otherwise × (1 + the share of its names
  that worked).

Tips are read by their parts and never by their words (`told`): a new wording changes no figure. A text without parts
is read line by line. A line reports a failure if it says so (failed, error, in vain, does not exist …). Its
names are then those in quotes outside of the call. A line reports a success by its words too (worked, known here,
`-> ok`, a numbered step). Its names are then all names in the line. A line without a verdict has the verdict of its
heading, and is skipped if that has none. A call is the text in the brackets after a tool's name. An agent reads the
first 6,000 characters (`benchmarks.evaluate.recall`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.evaluate.recall import Note, Recall, Story, within_budget
from fleetlore.advice.gate import Tip
from fleetlore.calls.call import KEYWORDS
from fleetlore.words import names_of
from models.backtest import plain_text

SAME_FAILED = 0.1
SAME_SOLVED = 20.0
NAME_FAILED = 0.1
LOOK_UP = 2.0
# However bad a proposal looks, it is still possible.
LEAST = 1e-4

Floats = npt.NDArray[np.float64]

_STORY = re.compile(r"^- (?=\S)", re.MULTILINE)
_FAILURE = re.compile(
    r"\b(?:fail(?:s|ed|ure)?|error|in vain|does ?n[o']t exist|unknown|no such|not found)\b", re.IGNORECASE
)
_WORKS = re.compile(r"->\s*ok\b|^\s*\d+\. |\b(?:worked|known here|then)\b", re.IGNORECASE)
_SOLVED = re.compile(r"\b(?:what worked|succeeded|solved)\b", re.IGNORECASE)
_CALL = re.compile(r"\b\w+\((.*)\)", re.DOTALL)
_QUOTED = re.compile(r"`([^`]{1,60})`|'([^']{1,60})'|\"([^\"]{1,60})\"")
_NAME = re.compile(r"[A-Za-z_]\w*")
# A placeholder in a look-up (`models.calls.look_ups`), as it is learned and as it is shown.
_SLOT = re.compile(r"<(?:name|value)>|\b(?:NAME|VALUE)\b")


@lru_cache(maxsize=65_536)
def stories(text: str) -> tuple[Story, ...]:
    return tuple(_story(part) for part in _STORY.split(text) if part.strip())


def _story(text: str) -> Story:
    works: set[str] = set()
    fails: set[str] = set()
    failed: set[str] = set()
    last: str | None = None
    heading: bool | None = None
    for line in text.splitlines():
        call = _CALL.search(line)
        rest = line.replace(call.group(), " ", 1) if call else line
        verdict = False if _FAILURE.search(rest) else True if _WORKS.search(rest) else None
        if call is None and rest.rstrip().endswith(":"):
            heading = verdict
            continue
        if verdict is None:
            verdict = heading
        if verdict is None:
            continue
        if not verdict:
            fails |= set(_quoted(rest))
            if call is not None:
                failed.add(plain_text(call.group(1)))
            continue
        works |= names_of(line) - KEYWORDS
        if call is not None:
            last = plain_text(call.group(1))
    return Story(frozenset(works), frozenset(fails), frozenset(failed), last if _SOLVED.search(text) else None)


def _quoted(text: str) -> list[str]:
    """Names in quotes: of a dotted one the last part; of several words none."""
    found = []
    for match in _QUOTED.finditer(text):
        quoted = next(group for group in match.groups() if group)
        if len(quoted.split()) == 1 and (names := _NAME.findall(quoted)):
            found.append(names[-1].lower())
    return found


def told(tip: Tip, about: int | None = None) -> Note:
    """A tip as an agent reads it. `about`: the index of the proposal that it was given for."""
    item = tip.item
    if item is not None and item.kind == "strategy":
        calls = [found.group(1) for line in item.content.splitlines() if (found := _CALL.search(line))]
        solved = plain_text(calls[-1]) if calls else None
        return Note(tip.text, about, _story(item.content)._replace(solved=solved))
    names = [quote.text for quote in tip.quotes if quote.sort == "name" and item is None]
    look_up = next((quote.text for quote in tip.quotes if quote.sort == "call"), "") if item is None else ""
    works = names_of(_SLOT.sub(" ", "\n".join((*names, *tip.brings)))) - KEYWORDS
    fails = {name.lower() for part in (*tip.rejected, *(item.was if item else ())) for name in _NAME.findall(part)[-1:]}
    story = Story(frozenset(works), frozenset(fails), look_up=look_up.strip("`"), chance=tip.chance)
    return Note(tip.text, about, story)


def _is_look_up(call: str, look_up: str) -> bool:
    """Whether a proposal is a look-up: the same call with values in place of its placeholders."""
    parts = [re.escape(plain_text(part)) for part in _SLOT.split(look_up)]
    return bool(look_up) and re.fullmatch(r"\s*\S+\s*".join(parts), plain_text(call)) is not None


def factors(proposals: Sequence[str], recall: Recall) -> Floats:
    """By what the weight of each proposal is multiplied: (proposals,)."""
    found = np.ones(len(proposals))
    for place, risk in enumerate(recall.risks):
        if risk is not None:
            found[place] *= 1.0 - risk
    works: Counter[str] = Counter()
    fails: Counter[str] = Counter()
    failed: set[str] = set()
    solved: set[str] = set()
    look_ups: set[str] = set()
    for note in within_budget(recall.notes):
        for story in stories(note.text) if note.story is None else (note.story,):
            if note.about is not None and not recall.risks and story.chance is not None:
                found[note.about] *= 1.0 - story.chance
            look_ups.add(story.look_up)
            works.update(story.works)
            fails.update(story.fails)
            failed |= story.failed
            if story.solved is not None:
                solved.add(story.solved)
    for place, text in enumerate(proposals):
        plain, names = plain_text(text), names_of(text) - KEYWORDS
        if plain in solved:
            found[place] *= SAME_SOLVED
        elif plain in failed:
            found[place] *= SAME_FAILED
        if any(_is_look_up(text, look_up) for look_up in look_ups):
            found[place] *= LOOK_UP
        elif any(fails[name] > works[name] for name in names):
            found[place] *= NAME_FAILED
        elif names:
            found[place] *= 1.0 + sum(works[name] > 0 for name in names) / len(names)
    clipped: Floats = np.maximum(found, LEAST)
    return clipped


def rule_hash() -> str:
    """SHA-256 of this file: figures are of the rule that it names."""
    return sha256(Path(__file__).read_bytes()).hexdigest()
