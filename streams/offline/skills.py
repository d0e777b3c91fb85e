"""Write hints as skills: folders with a `SKILL.md`, as coding agents read them, one for each tool or task.

A skill includes a hint that the gate would show to a new agent.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
from msgspec.structs import replace

from fleetlore.advice.advice import chosen
from fleetlore.advice.changes import item_tip
from fleetlore.advice.gate import clean
from fleetlore.advice.situation import Asked, Known, Met, Situation
from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.files import write_whole
from fleetlore.recall.hints import when_of
from fleetlore.recall.index import LoreIndex, is_recalled
from fleetlore.stats import stable_hash

__all__ = ["skills_of", "write_skills"]

_FILE = "SKILL.md"
# A skill's name has at most 64 characters. The hash takes nine.
_MAX_NAME = 48
_MAX_HINTS = 50
_MAX_TITLE = 200
_MADE = "Written by `fleetlore export lore`. Another export replaces this file."


def skills_of(index: LoreIndex, settings: Settings, now: float) -> dict[str, list[str]]:
    found = defaultdict[str, list[str]](list)
    moment = Situation(Asked(), Met(), Known(now, quorum=settings.quorum, closed_tools=settings.closed_tools))
    for item in sorted(index.items.values(), key=lambda each: (-each.standing(), each.id)):
        about = f"the tool {item.tool}" if item.tool else f"the task {item.task}"
        if is_recalled(item) and not index.hides(item) and len(found[about]) < _MAX_HINTS:
            tips = chosen(index, [item_tip(item, "searched")], moment, holdout_share=0.0, most=1).tips
            found[about] += [tip.text for tip in tips]
    for hint, _ in index.hints.standing.values():
        if not 0 < hint.until <= now:
            about = f"the tool {hint.tool}" if hint.tool else f"the task {hint.task}" if hint.task else "any tool"
            when = when_of(replace(hint, tool="", task=""))
            found[about].insert(0, clean(f"{when}: {hint.text} (written by {hint.author})"))
    return {about: lines for about, lines in found.items() if lines}


def write_skills(folder: Path, skills: Mapping[str, Sequence[str]]) -> list[str]:
    names = []
    for about, lines in sorted(skills.items()):
        words = re.sub(r"[^a-z0-9]+", "-", about.removeprefix("the ").lower()).strip("-")[:_MAX_NAME].strip("-")
        name = f"{words}-{stable_hash(about) % 16**8:08x}"
        title = " ".join(about.split())[:_MAX_TITLE]
        told = f"What other agents found out about {title}. Read it before you work with it."
        front = f"---\nname: {name}\ndescription: {orjson.dumps(told).decode()}\n---\n\n"
        hints = "\n".join(f"- {line}" for line in lines)
        try:
            (folder / name).mkdir(parents=True, exist_ok=True)
            write_whole(folder / name / _FILE, f"{front}{_MADE}\n\n{hints}\n".encode())
        except OSError as error:
            raise ConfigError(f"{folder / name} cannot be written: {error.strerror}") from None
        names.append(name)
    return names
