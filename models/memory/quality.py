"""Decide which items are not worth recalling, by one stated rule a reason.

The rules look at what an item says alone: they name no tool and no message.
"""

from __future__ import annotations

import re
from functools import lru_cache

from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.wire.lore import MemoryItem

# What the distiller writes before a quoted error or call, and `is_junk` reads again.
ERROR = "Error: "
ERROR_MET = "Error met there: "
TRIED = "Tried in vain: "
SAME_CALLS = "A session that failed made the same calls in another order or number."

# A number, or a name as programs write it: snake_case, a path, a module, an address. Most errors hold one.
_PLAIN_NAME = re.compile(r"\d|[^\W\d_][\w-]*[_/\\.@=][\w-]")
_NAME = re.compile(
    r"'[^']+'|\"[^\"]+\"|`[^`]+`|\[[^\]]+\]"  # something in quotes or brackets
    r"|[a-z][A-Z]"  # camelCase
    # An exception names what is wrong, except an assertion: that says only *that* a result is wrong.
    r"|\b[A-Z]\w*(?:Error|Exception|Warning|Interrupt)\b"
)
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")
_JOINT = re.compile(r"(?<=[a-z])(?=[A-Z])|_")
_WORD = re.compile(r"[^\W\d_]{3,}")
_KEY = re.compile(r'"([^"\\]{1,64})"\s*:')
_NAME_VALUE = re.compile(r':\s*"([^"\\\s]{1,64})"')
# Function words, and words that mean no more than "it failed".
_EMPTY = frozenset(
    _WORD.findall(
        "the and but for not was were are has have had been this that these those its your you our can could "
        "cannot did does with there please try again sorry wrong incorrect correct right fail failed fails "
        "failure error errors unsuccessful success successful successfully"
    )
)
_STEM = 5


def is_junk(item: MemoryItem) -> str | None:
    """Why an item is not worth recalling; None if nothing speaks against it.

    Returns:
        `empty`: no content, or a recovery without a call that helps;
        `verdict`: the error of a lesson says only that the call failed (`is_verdict`);
        `transient`: it is about a transient error;
        `no_contrast`: a strategy whose two sides made the same calls;
        `contradicted`: more sessions contradict than back it, and taught nothing else;
        `harmful`: even the upper end of the 95 % interval of its uplift is negative.
    """
    if not item.title.strip() or not item.content.strip() or (item.kind == "recovery" and item.remedy is None):
        return "empty"
    if item.uplift_high is not None and item.uplift_high < 0:
        return "harmful"
    if item.against > item.support and item.superseded_by is None:
        return "contradicted"
    lines = item.content.splitlines()
    if item.kind == "strategy" and SAME_CALLS in lines:
        return "no_contrast"
    quoted = ERROR_MET if item.kind == "strategy" else ERROR
    errors = [line.removeprefix(quoted) for line in lines if line.startswith(quoted)]
    if item.kind != "fact" and any(failure_of(item.tool, "", None, error).transient for error in errors):
        return "transient"
    # Only a lesson: a strategy is about its calls, and a recovery has shown that its call helps.
    if item.kind == "lesson":
        call = next((line for line in lines if line.startswith(TRIED)), "")
        arguments = call.partition("(")[2].removesuffix(")")
        if any(is_verdict(item.tool, arguments, error) for error in errors):
            return "verdict"
    return None


def is_verdict(tool: str, arguments: str, error: str) -> bool:
    """Whether an error text says only *that* a call failed and not what is wrong.

    "Your answer is wrong" tells the next agent nothing. A text is informative if it names an exception, a code or
    number, or something quoted or written as programs write names. So is one that says more than "it failed" about the
    call (a word of the tool's name, of a key or of a named value), or begins with a word of the call ("ping: …").

    Args:
        arguments: of the call, as JSON or text.
    """
    if _names(error):
        return False
    head, colon, _ = error.partition(":")
    if colon and _WORD.fullmatch(head) and re.search(rf"\b{head}\b", arguments):
        return False
    names = [tool]
    if arguments[:1] == "{":
        names += _KEY.findall(arguments) + _NAME_VALUE.findall(arguments)
    about = {word[:_STEM] for name in names for word in _words(name)}
    said = [word for word in _words(error) if word not in _EMPTY]
    said_of = [word for word in said if word[:_STEM] in about]
    return not said_of or len(said_of) == len(said)


@lru_cache(maxsize=8192)
def _names(error: str) -> bool:
    if _PLAIN_NAME.search(error):
        return True
    # An apostrophe within a word opens no quotation.
    text = _APOSTROPHE.sub("", error).replace("AssertionError", "")
    return bool(_NAME.search(text))


@lru_cache(maxsize=8192)
def _words(text: str) -> tuple[str, ...]:
    """Words in lower case, those inside camelCase and snake_case too."""
    return tuple(word.casefold() for word in _WORD.findall(_JOINT.sub(" ", text)))
