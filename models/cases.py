"""Find a session's instructive failed calls, and the later calls that worked.

Items quote a call on one line, with literals masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from fleetlore.fingerprint.literals import masked_text, names
from fleetlore.fingerprint.normal_form import head_line, template
from fleetlore.wire.trajectory import Judgment, Step
from models.memory.candidate import SUCCESS_ABOVE, is_verdict, named_class
from models.memory.candidate import item_id as versioned_id

__all__ = ["is_shown_to_work", "said_by", "telling", "tells", "worked_after"]

Calls = tuple[Step, ...]

# Version of the distiller, in the ids of its items.
VERSION = "extractive-5"
MAX_GOAL = 160
MAX_STEP = 200
_MAX_ERROR = 300
# Cached shortened texts, some 10 MB. Goals, errors and calls repeat.
REMEMBERED = 4096
_QUOTED = re.compile(r"(['\"`])([^'\"`]+)\1")


def tells(call: Step) -> bool:
    """Whether a call failed and its error says why."""
    return call.failed and not is_verdict(call.tool, call.error_message or "", call.error_type)


def telling(calls: Sequence[Step]) -> list[int]:
    known: dict[str, bool] = {}
    found = []
    for place, call in enumerate(calls):
        if call.pattern is not None and not call.transient:
            if call.pattern not in known:  # a stuck agent repeats one error
                known[call.pattern] = tells(call)
            if known[call.pattern]:
                found.append(place)
    return found


def worked_after(calls: Sequence[Step], place: int, tool: str | None = None) -> Iterator[int]:
    for later in range(place + 1, len(calls)):
        call = calls[later]
        if not call.failed and (tool is None or call.tool == tool):
            yield later


def said_by(call: Step) -> str:
    return call.error_message or call.error_type or "" if call.failed else call.result


def is_shown_to_work(judgment: Judgment, call: Step) -> bool:
    """Whether a result, a later step or the session's success shows that the call worked. The log may end before the
    answer, so a last step without a result is no evidence."""
    shown = bool(call.result) or call is not judgment.trajectory.steps[-1]
    return not call.failed and (shown or judgment.verdict.probability > SUCCESS_ABOVE)


def item_id(kind: str, *key: str) -> str:
    return versioned_id(VERSION, kind, *key)


def said(failed: Step) -> str:
    return failed.error_message or failed.error_type or ""


@lru_cache(maxsize=REMEMBERED)
def _error_names(message: str) -> frozenset[str]:
    return names(template(message))


def known_of(failed: Step) -> frozenset[str]:
    """The words that any agent with the same error knows."""
    return _error_names(said(failed))


@lru_cache(maxsize=REMEMBERED)
def _quoted(message: str) -> frozenset[str]:
    quoted = [match[2] for match in _QUOTED.finditer(template(message))]
    return frozenset(part for name in quoted for part in (name, *name.split(".")) if part)


def named_by(failed: Step) -> frozenset[str]:
    return _quoted(said(failed))


def error_text(step: Step) -> str:
    """The class of an error, if a program named it, and the line that says what is wrong."""
    return _error_text(named_class(step.error_type), said(step))


@lru_cache(maxsize=REMEMBERED)
def _error_text(class_: str, message: str) -> str:
    text = masked_text(line(head_line(message), _MAX_ERROR), _error_names(message))
    return text if class_ in text else f"{class_}: {text}"


@lru_cache(maxsize=REMEMBERED)
def line(text: str, limit: int) -> str:
    if len(text) <= limit and "  " not in text and text.isprintable():
        return text.strip()  # the fast path of most texts
    whole = " ".join(text[: 4 * limit].split())
    return whole if len(whole) <= limit else f"{whole[: limit - 1]}…"
