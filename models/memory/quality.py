"""Decide which items are not worth recalling, by one stated rule a reason."""

from __future__ import annotations

import re
from functools import lru_cache

from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.wire.lore import MemoryItem
from fleetlore.words import PLAIN_WORD, words

# The distiller writes this before a quoted error, and `is_junk` reads it again.
ERROR = "Error: "

# A number, a name as programs write it (snake_case, a path, an address), or something in quotes or brackets.
_NAME = re.compile(
    r"\d|[^\W\d_][\w-]{0,64}[_/\\.@=][\w-]|[a-z][A-Z]"
    r"|'[^']+'|\"[^\"]+\"|`[^`]+`|\[[^\]]{1,200}\]"
)
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")
# A sentence about how a process ended only says that it failed.
_ENDED = re.compile(
    r"\b(?:exit(?:ed)?|return(?:ed)?)(?:[ _]?(?:with|non-?zero|exit|status|code|value)){0,6}[ :=_]+-?\d+\b", re.I
)
# Function words, and words that mean no more than "what was called failed".
_EMPTY = frozenset(
    PLAIN_WORD.findall(
        "the and but for not was were are has have had been this that these those its your you our can could cannot "
        "did does don didn doesn isn wasn with there please try again sorry wrong incorrect correct right fail failed "
        "fails failure error errors unsuccessful success successful successfully exception traceback warning assertion "
        "runtime unknown unexpected other something nothing happen happens happened occurred went understand command "
        "action call tool execution process operation request response answer solution result output input exit exited "
        "code status returned non zero"
    )
)
_STEM = 5
# An exception's class, which a program named. One made of the words of a message is in lower case.
_CLASS = re.compile(r"[A-Za-z_.]*[A-Z]\w*")


def is_junk(item: MemoryItem) -> str | None:
    if not item.title.strip() or not item.content.strip() or (item.kind == "recovery" and item.remedy is None):
        return "empty"
    if item.against > item.support:
        return "contradicted"
    errors = [line.removeprefix(ERROR) for line in item.content.splitlines() if line.startswith(ERROR)]
    if item.kind == "recovery" and any(failure_of(item.tool, "", None, error).transient for error in errors):
        return "transient"
    return None


def is_verdict(tool: str, error: str, error_type: str | None = None) -> bool:
    """Whether a whole error says only *that* a call failed: "Your answer is wrong", "exit code 1".

    An informative one holds a code, something quoted or a program's name, or its class and message say more together.
    """
    message = _ENDED.sub(" ", error)
    if _names(message):
        return False
    whole = f"{named_class(error_type)} {message}"
    said = [word for word in _words(whole) if word not in _EMPTY]
    return not said or (len(said) == 1 and said[0][:_STEM] in {word[:_STEM] for word in _words(tool)})


def named_class(error_type: str | None) -> str:
    """The class of an error that a program named, or ""."""
    return error_type if error_type and _CLASS.fullmatch(error_type) else ""


@lru_cache(maxsize=8192)
def _names(message: str) -> bool:
    # An apostrophe within a word opens no quotation. A class within the message is read as words.
    text = re.sub(r"\b(?:[A-Z]\w*)?(?:Error|Exception|Warning|Interrupt)\b", " ", _APOSTROPHE.sub("", message))
    return bool(_NAME.search(text))


@lru_cache(maxsize=8192)
def _words(text: str) -> tuple[str, ...]:
    return tuple(words(text, PLAIN_WORD))
