"""How an agent reads a text from its memory: the same simple way for every memory.

A text tells one or several stories; a story is a list of calls in order, each of which worked or failed. A text that was given for
one call may also say how often such calls fail. Whatever else it says is lost on this agent. Of a call that it may make now, a
story says

* this way (+1/2, and -1/2 for the other candidates of the same tool): it worked in the story, as the story's last word on it. Which
  of several ways works is all that says: that a tool worked elsewhere is no reason to use it here;
* not yet (−1): it failed in the story and worked after other calls, and some of those have not been made since the last progress;
  those that are missing then get +1;
* don't (−1): it failed in the story and never worked.

A call of the story is about those of the candidates with the same tool and the same names of arguments that agree with it in the
most values: names and numbers differ from session to session. "x of y such calls failed" says −x/y of the call it was given for. Where several candidates agree equally well it says half as much
of each, for it cannot tell them apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from fleetlore.testing.world import Call

_CALL = re.compile(r"([A-Za-z_][\w.|-]*)\((?=\{|\))")
_STORY = re.compile(r"^- (?=\S)", re.MULTILINE)
_FAILED = re.compile(r"^(?:failed|tried in vain)\b", re.IGNORECASE)
_WORKED = re.compile(r"^(?:worked|then|looked up|\d+\.)", re.IGNORECASE)
_AGAIN = re.compile(r"^got past it: the same call again", re.IGNORECASE)
_WRONG = re.compile(r"^only in a session that failed", re.IGNORECASE)
_MISSING = re.compile(r"^a session that failed did not do", re.IGNORECASE)
_RAW = re.compile(r"\s*(?:→|->)\s*(ok|error)\b")
_RATE = re.compile(r"\b(\d+) of (\d+) such calls failed")
THIS_WAY = 0.5
_DECODER = json.JSONDecoder()


class Told(NamedTuple):
    """One call of a story."""

    tool: str
    arguments: dict[str, Any]
    worked: bool


Story = tuple[Told, ...]


@lru_cache(maxsize=16_384)
def stories(text: str) -> tuple[Story, ...]:
    """The stories of a text; none where it quotes no call that can be read."""
    found = []
    for part in _STORY.split(text):
        story: list[Told] = []
        verdict: bool | None = None
        for line in map(str.strip, part.splitlines()):
            if _WRONG.match(line):
                verdict = False
            elif _MISSING.match(line):
                verdict = True
            elif _AGAIN.match(line):
                story.extend(told._replace(worked=True) for told in story[:1])
            elif (told := _told(line, verdict)) is not None:
                story.append(told)
        if story:
            found.append(tuple(story))
    return tuple(found)


def _told(line: str, listed: bool | None) -> Told | None:
    match = _CALL.search(line)
    if match is None:
        return None
    arguments: Any = {}
    end = match.end() + 1
    if line[match.end()] == "{":
        try:
            arguments, end = _DECODER.raw_decode(line, match.end())
        except ValueError:
            return None  # cut in the middle
        end += 1
    raw = _RAW.match(line, end)
    if raw is not None and line.startswith(match.group()):
        worked: bool | None = raw.group(1) == "ok"
    elif _FAILED.match(line):
        worked = False
    elif _WORKED.match(line):
        worked = True
    else:
        worked = listed if line.startswith("- ") else None
    return None if worked is None else Told(match.group(1), arguments, worked)


@lru_cache(maxsize=16_384)
def failure_rate(text: str) -> float | None:
    """The share of such calls that failed, where the text says so."""
    match = _RATE.search(text)
    return int(match.group(1)) / max(1, int(match.group(2))) if match else None


def advised(
    text: Sequence[Story],
    warned: Sequence[tuple[int, float | None]],
    candidates: Sequence[Call],
    made: Collection[str],
) -> list[float]:
    """What was read of each candidate: −1 (don't) to 1 (do it first), the mean over the stories and rates that say anything of it.

    Args:
        warned: place of a candidate and how often such calls fail.
        made: `Call.key` of the calls that worked since the last progress.
    """
    totals = [0.0] * len(candidates)
    counts = [0] * len(candidates)
    for index, rate in warned:
        if rate is not None:
            totals[index] -= rate
            counts[index] += 1
    for story in text:
        for index, value in _says(story, candidates, made).items():
            totals[index] += value
            counts[index] += 1
    return [total / count if count else 0.0 for total, count in zip(totals, counts, strict=True)]


def _says(story: Story, candidates: Sequence[Call], made: Collection[str]) -> dict[int, float]:
    about = [_about(told, candidates) for told in story]
    first_failure: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, indices in enumerate(about):
        for index in indices:
            last[index] = place
            if not story[place].worked:
                first_failure.setdefault(index, place)
    said: dict[int, float] = {}
    wanted: dict[int, float] = {}
    for index, place in last.items():
        weight = about[place][index]
        if not story[place].worked:
            said[index] = -weight
            continue
        begun = first_failure.get(index)
        missing = _missing(about, story, begun, place, candidates, made) if begun is not None else {}
        if missing:
            said[index] = -weight
            for other, share in missing.items():
                wanted[other] = max(share, wanted.get(other, 0.0))
            continue
        rivals = [each for each, call in enumerate(candidates) if call.tool == candidates[index].tool and each != index]
        if rivals:
            said[index] = THIS_WAY * weight
        for rival in rivals:
            if rival not in last:
                said[rival] = -THIS_WAY * weight
    return said | {index: share for index, share in wanted.items()}


def _missing(
    about: Sequence[dict[int, float]],
    story: Story,
    begun: int,
    place: int,
    candidates: Sequence[Call],
    made: Collection[str],
) -> dict[int, float]:
    """Candidates that the story did between a failure and its end, and that have not been made yet."""
    missing: dict[int, float] = {}
    for between in range(begun + 1, place):
        told = story[between]
        if told.worked and told.tool != story[place].tool:
            for index, weight in about[between].items():
                if candidates[index].key not in made:
                    missing[index] = weight
    return missing


def _about(told: Told, candidates: Sequence[Call]) -> dict[int, float]:
    """The candidates that a told call is about, each with how much of it is about that one."""
    alike = [
        index
        for index, call in enumerate(candidates)
        if call.tool == told.tool and call.arguments.keys() == told.arguments.keys()
    ]
    if not alike:
        return {}
    agreement = {
        index: sum(candidates[index].arguments[name] == value for name, value in told.arguments.items())
        for index in alike
    }
    most = max(agreement.values())
    best = [index for index in alike if agreement[index] == most]
    return dict.fromkeys(best, 1.0 if len(best) == 1 else 0.5)
