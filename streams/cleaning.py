"""The texts of events, before anything is made of them: as text, and with secrets masked.

Agents of ours have redacted already; a foreign client may not have, and nothing is stored unseen.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetlore.patterns import arguments_text
from fleetlore.redaction import redact, suspects
from streams.incoming import OUTCOME, Incoming

_OF_OUTCOME = ("arguments", "result", "error_message")
_OF_OTHERS = ("content", "goal", "task")


def clean(events: Sequence[Incoming]) -> None:
    """Make arguments and results texts and mask the secrets of all texts, in place: one look at all of a batch."""
    texts: list[str] = []
    for event in events:
        data = event.data
        if event.type == OUTCOME:
            data.arguments = arguments_text(data.arguments)
            data.result = arguments_text(data.result)
            texts += (data.arguments, data.result, data.error_message or "")
        else:
            texts += (data.content or "", data.goal or "", data.task or "")
    for place in suspects([text.encode("utf-8", "surrogatepass") for text in texts]):
        event, number = events[place // 3], place % 3
        name = (_OF_OUTCOME if event.type == OUTCOME else _OF_OTHERS)[number]
        setattr(event.data, name, redact(texts[place]))
