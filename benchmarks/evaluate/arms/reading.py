"""Read a text from a memory as the agent does: the same simple way for every memory.

A text tells one or several stories; a story is a list of calls in order, each of which worked or failed. A text that
was given for one call may also say how often such calls fail. Whatever else it says is lost on this agent. Of a call
that it may make now, a story says

* this way (+1/2, and -1/2 for the other candidates of the same tool): it worked in the story, as the story's last word
on it. Which of several ways works is all that says: that a tool worked elsewhere is no reason to use it here; * not yet
(−1): it failed in the story and worked after other calls, and some of those have not been made since the last progress;
those that are missing then get +1. Where the very same call worked in the end, its arguments were not at fault: then
not yet is said of the other candidates of its tool as well. In the session's own log nothing is missing that it did
before, until the tool fails again; * don't (−1): it failed in the story and never worked.

A call of the story is about those of the candidates with the same tool and the same names of arguments that agree with
it in the most values: names and numbers differ from session to session. "will likely fail (x%)" says −x/100 of the call
it was given for, "may fail" −1/2. Where several candidates agree equally well it says half as much of each, for it
cannot tell them apart. Which way to make a call and whether to make it now are two questions: of each the mean over
what was read is taken, and the two are added.

A line `push: ERROR — pull({...})` is a story too: push failed, pull worked, push worked. So is one that ends with what
was changed, `force=true` → `force=false`. Where it ends with `not pull({...})`, pull alone failed: push was made to see
whether it had helped. Of a call it may tell some arguments alone, or none: it is then about the candidates that have
these arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from benchmarks.demo.world import Call

_CALL = re.compile(r"([A-Za-z_][\w.|-]*)\((?=\{|\))")
_STORY = re.compile(r"^- (?=\S)", re.MULTILINE)
_FAILED = re.compile(r"^(?:failed|tried in vain)\b", re.IGNORECASE)
_WORKED = re.compile(r"^(?:worked|then|looked up|\d+\.)", re.IGNORECASE)
_AGAIN = re.compile(r"^got past it: the same call again", re.IGNORECASE)
_WRONG = re.compile(r"^only in a session that failed", re.IGNORECASE)
_MISSING = re.compile(r"^a session that failed did not do", re.IGNORECASE)
_RAW = re.compile(r"\s*(?:→|->)\s*(ok|error)\b")
# The title of what got others past a failure, or did not: the tool, its error, and the call or the change.
_TITLE = re.compile(
    r"^(?:\[#\w+\] )?(?:Past a failure like this \([^)]*\): )?([A-Za-z_][\w.|-]*): .* — (not )?([`A-Za-z_].*)$"
)
_CHANGE = re.compile(r"^`([\w.-]+)=(.*?)` → `\1=(.*?)`")
# How a tip says both.
_INSTEAD = re.compile(r"^Use `([\w.-]+)=(.*?)` instead of `\1=(.*?)` in ([\w.|-]+)\.")
_FIRST = re.compile(r"^Call `(.*)` first: ([\w.|-]+) needs it")
_RATE = re.compile(r"\bwill likely fail \((\d+)%\)|\bmay fail: |\bwill likely fail: ")
THIS_WAY = 0.5
_DECODER = json.JSONDecoder()


class Told(NamedTuple):
    """One call of a story. `whole`: all of its arguments are told."""

    tool: str
    arguments: dict[str, Any]
    worked: bool
    whole: bool = True


Story = tuple[Told, ...]


@lru_cache(maxsize=16_384)
def stories(text: str) -> tuple[Story, ...]:
    """The stories of a text; none where it quotes no call that can be read."""
    found = []
    for part in _STORY.split(text):
        story: list[Told] = []
        verdict: bool | None = None
        for line in map(str.strip, part.splitlines()):
            if tip := _INSTEAD.match(line):
                story.extend(_changed(tip[4], tip[1], tip[3], tip[2]))
            elif tip := _FIRST.match(line):
                story.extend(_titled(tip[2], None, tip[1]))
            elif title := _TITLE.match(line):
                story.extend(_titled(*title.groups()))
                if title[2]:
                    break
            elif _WRONG.match(line):
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


def _titled(tool: str, vain: str | None, way: str) -> list[Told]:
    """The story of a title: what was changed in a call of the tool, or the call that was made before it worked."""
    if change := _CHANGE.match(way):
        return _changed(tool, change[1], change[2], change[3])
    made = _told(f"then {way}", None)
    if made is None or vain:
        return [] if made is None else [made._replace(worked=False)]
    return [Told(tool, {}, False, whole=False), made, Told(tool, {}, True, whole=False)]


def _changed(tool: str, name: str, failed: str, worked: str) -> list[Told]:
    """The story of an argument whose value was changed."""
    return [
        Told(tool, {name: _value(failed)}, False, whole=False),
        Told(tool, {name: _value(worked)}, True, whole=False),
    ]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


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
    """How likely the call fails, where the text says so."""
    match = _RATE.search(text)
    return None if match is None else int(match.group(1) or 50) / 100


def advised(
    text: Sequence[Story],
    warned: Sequence[tuple[int, float | None]],
    candidates: Sequence[Call],
    made: Collection[str],
    log: Sequence[Story] = (),
    failing: Collection[str] = (),
) -> list[float]:
    """What was read of each candidate: −1 (don't) to 1 (do it first), means over the stories and rates that say
    anything of it.

    Args:
        warned: place of a candidate and how often such calls fail.
        made: `Call.key` of the calls that worked since the last progress.
        log: stories of the session itself.
        failing: tools that failed since the last progress.
    """
    whether: list[list[float]] = [[] for _ in candidates]
    which: list[list[float]] = [[] for _ in candidates]
    for index, rate in warned:
        if rate is not None:
            whether[index].append(-rate)
    said = [_says(story, candidates, made) for story in text]
    said += [_says(story, candidates, made, failing) for story in log]
    for now, way in said:
        for index, value in now.items():
            whether[index].append(value)
        for index, value in way.items():
            which[index].append(value)
    return [min(1.0, max(-1.0, _mean(a) + _mean(b))) for a, b in zip(whether, which, strict=True)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _says(
    story: Story, candidates: Sequence[Call], made: Collection[str], failing: Collection[str] | None = None
) -> tuple[dict[int, float], dict[int, float]]:
    """Whether to make each call now, and which way.

    `failing`: of a story of the session itself, the tools for which something may be missing; of another, any may.
    """
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
    waiting: dict[int, float] = {}
    way: dict[int, float] = {}
    for index, place in last.items():
        weight = about[place][index]
        if not story[place].worked:
            said[index] = -weight
            continue
        begun = first_failure.get(index)
        lacks = begun is not None and (failing is None or candidates[index].tool in failing)
        missing = _missing(about, story, begun, place, candidates, made) if begun is not None and lacks else {}
        if missing and begun is not None:
            said[index] = -weight
            if story[begun][:2] == story[place][:2]:
                waiting.update({each: weight for each, call in enumerate(candidates) if call.tool == story[place].tool})
            for other, share in missing.items():
                wanted[other] = max(share, wanted.get(other, 0.0))
            continue
        rivals = [each for each, call in enumerate(candidates) if call.tool == candidates[index].tool and each != index]
        if rivals:
            way[index] = THIS_WAY * weight
        for rival in rivals:
            if rival not in last:
                way[rival] = -THIS_WAY * weight
    said |= {index: -weight for index, weight in waiting.items()}
    return said | wanted, way


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
        if call.tool == told.tool
        and call.arguments.keys() >= told.arguments.keys()
        and (len(call.arguments) == len(told.arguments) or not told.whole)
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
