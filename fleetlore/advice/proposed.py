"""Pass on the name that the session's own error proposes in place of a rejected one.

Models often overlook it in a long error. The session has read the error, so no word of others is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from fleetlore.advice.gate import Tip
from fleetlore.advice.situation import Situation
from fleetlore.calls.context import ERROR_CHARACTERS
from fleetlore.fingerprint.fingerprint import pattern_id
from fleetlore.fingerprint.names import spelled
from fleetlore.recall.index import LoreIndex

__all__ = ["proposed"]

_NAME = r"[`'\"‘“(\[]{0,2}(-{0,2}[A-Za-z_][\w.:-]{0,60})"
_AS_WHAT = r"(?: (?:to )?(?:use|reference|call|run))?(?: (?:the )?(?:attribute|column|command|function|option|table))?"
_PROPOSALS = re.compile(
    rf"(?:did you mean|(?:perhaps|maybe|probably|might have) (?:you )?meant?){_AS_WHAT}[:\s]{{1,4}}{_NAME}"
    rf"|(?:most similar|closest) (?:command|match|name|option|choice)s?(?: is| are)?[:\s]{{1,4}}{_NAME}"
    rf"|\buse {_NAME}[`'\"’”)\]]{{0,2}}(?:\(\))?,? instead|\binstead,? use {_NAME}(?=[`'\"’”(.]|$)"
    rf"|\b(?:renamed to|replaced (?:by|with)|in favou?r of) {_NAME}",
    re.IGNORECASE,
)
_NO_NAMES = frozenset("a an another any it one something that the this to your".split())  # noqa: SIM905


def proposed(index: LoreIndex, moment: Situation) -> Iterator[Tip]:
    """Yield the name that the error proposes, if the call does not hold it."""
    failed = moment.met.failed
    found = _PROPOSALS.search(failed.error[:ERROR_CHARACTERS]) if failed is not None else None
    if failed is None or found is None:
        return
    name = next(group for group in found.groups() if group).rstrip(".:-")
    words = re.findall(r"[\w.-]+", failed.call.text)
    if name.startswith("_"):
        return  # Python proposes whatever is spelled alike
    if name.lower() in _NO_NAMES or name in words or name in {word.rpartition(".")[2] for word in words}:
        return
    named = [each for each in failed.kind.names if each != name.lower()]
    rejected = tuple(get_close_matches(name.lower(), named, 1)) or (tuple(named) if len(named) == 1 else ())
    instead = f" instead of `{spelled(rejected[0], failed.call.text)}`" if rejected else ""
    id = pattern_id("proposed", failed.failure.class_)
    parts = (f"Use `{name}`{instead}: the error itself proposes it.",)
    yield Tip(id, "proposed", parts, key=f"{id}\x1f{name}", rejected=rejected, brings=(name,))
