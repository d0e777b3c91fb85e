"""Hold a call that failed, and what its session knows."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from fleetlore.calls.context import KEYWORDS, Quantity
from fleetlore.calls.objects import Mark
from fleetlore.fingerprint.fingerprint import Failure

# `math.sqrt` is one word: of a call it says more than its parts.
_WORD = re.compile(r"(?<![\w.])[^\W\d][^\W\d.]*(?:\.[^\W\d.]+)*(?!\w)")


@lru_cache(maxsize=512)  # of a failure they are asked for twice, of a goal before every advice
def words(text: str) -> tuple[str, ...]:
    """Lower-case words of a text without digits in them, each once, without keywords."""
    found = dict.fromkeys(_WORD.findall(text.lower()))
    return tuple([word for word in found if len(word) > 1 and word not in KEYWORDS])


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that failed, and what its session knows.

    Attributes:
        text: of the arguments (`fleetlore.calls.context.text_of`).
        error: what the environment said.
        session: its id; what it alone has taught the fleet is left out.
        seen: lower-case names in its results and in its calls so far.
        cause: id of what made it fail (`fleetlore.fingerprint.fingerprint.cause_of`).
        arguments: as they were sent; `marks`, `quantities`: what was known of the things that they name.
        times: how often this very call has failed in its session since it last worked.
    """

    text: str
    error: str
    failure: Failure
    goal: str = ""
    session: str = ""
    seen: Collection[str] = ()
    cause: str = ""
    arguments: str = ""
    marks: tuple[Mark, ...] = ()
    quantities: Mapping[str, Quantity] = field(default_factory=dict)
    times: int = 1
