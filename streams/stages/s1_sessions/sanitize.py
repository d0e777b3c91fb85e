"""Clean the texts of events before anything is made of them: as text, without what was recalled, and with secrets
masked.

Agents of ours have seen to it already; a foreign client may not have. So no secret is stored, and advice that comes
back in an event is never taken for evidence (`fleetlore.recall.provenance`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from fleetlore.fingerprint.fingerprint import arguments_text
from fleetlore.recall.provenance import OPENING, redact_fenced
from fleetlore.redact.redact import redact, suspects
from streams.stages.s1_sessions.parse import OUTCOME, STARTED, Incoming

# Of a text: no stage keeps more than 2,000 characters or reads more than 8,000. The rest only tells two calls apart.
MAX_READ = 8192
_OF_OUTCOME = ("arguments", "result", "error_message")
_OF_STARTED = ("place", "goal", "task")
_NAMES = ("tool", "error_type", "adapter", "group", "role", "guard", "place", "user", "agent_group", "definitions")
_LISTS = ("advice", "withheld")
_OF_OTHERS = ("content", "goal", "task")


def clean(events: Sequence[Incoming]) -> None:
    """Turn arguments and results into texts, mark advice and mask secrets, in place and a batch at a time."""
    texts: list[str] = []
    for event in events:
        data = event.data
        if event.type == OUTCOME:
            data.arguments = arguments_text(data.arguments)
            data.result = arguments_text(data.result)
            texts += (data.arguments, data.result, data.error_message or "")
        else:
            content = data.place if event.type == STARTED else data.content
            texts += (content or "", data.goal or "", data.task or "")
    _clean_names(events)
    rests: dict[int, str] = {}
    for place, text in enumerate(texts):
        if len(text) > MAX_READ:
            texts[place], rests[place] = text[:MAX_READ], text[MAX_READ:]
    for place, text in enumerate(texts):
        if OPENING in text:
            texts[place] = redact_fenced(text)
            _put(events, place, texts[place] + rests.get(place, ""))
    for place in suspects(texts):
        _put(events, place, redact(texts[place]) + rests.get(place, ""))


def _clean_names(events: Sequence[Incoming]) -> None:
    """Mask what is short and mostly repeats: names, kinds, ids. What a name may hold is in every row it stands in."""
    for event in events:
        data = event.data
        event.agent, event.session = _masked(event.agent), _masked(event.session)
        for field in _NAMES:
            value = getattr(data, field)
            if type(value) is str:
                setattr(data, field, _masked(value))
        for field in _LISTS:
            value = getattr(data, field)
            if type(value) is list:
                setattr(data, field, [_masked(each) if type(each) is str else each for each in value])


@lru_cache(maxsize=16_384)
def _masked(name: str) -> str:
    return redact(name[:MAX_READ])


def _put(events: Sequence[Incoming], place: int, text: str) -> None:
    event, number = events[place // 3], place % 3
    fields = {OUTCOME: _OF_OUTCOME, STARTED: _OF_STARTED}.get(event.type, _OF_OTHERS)
    setattr(event.data, fields[number], text)
