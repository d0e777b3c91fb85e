"""Describe the form of an argument: letters and digits as classes, all else as it stands.

`#W9502127` is `#a9999999`. Whose number it is, is somebody's; that such a number begins with `#` and a letter and has
seven digits, is the tool's.
"""

from __future__ import annotations

import re

from fleetlore.fingerprint.fingerprint import parsed

LETTERS, DIGIT = "a", "9"
# A longer text is written freely.
MAX_PARTS = 12
MAX_CHARACTERS = 64
# Forms of a list's values.
MAX_OF_LIST = 2
_PART = re.compile(r"[^\W\d_]+|\d+|.", re.DOTALL)


def value_form(value: object) -> str | None:
    """The form of a value; None where it has none: a long text, an object, a list of many forms."""
    if isinstance(value, str):
        parts = parts_of(value)
        return None if parts is None else "".join(map(_class, parts))
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int | float):
        return "number"
    if not isinstance(value, list):
        return None
    forms = sorted({value_form(each) or "" for each in value[:MAX_CHARACTERS]})
    return None if "" in forms or len(forms) > MAX_OF_LIST else f"[{', '.join(forms)}]"


def parts_of(text: str) -> list[str] | None:
    """Runs of letters, runs of digits, and single characters between them; None of a long text."""
    parts = _PART.findall(text) if len(text) <= MAX_CHARACTERS else []
    return parts if 0 < len(parts) <= MAX_PARTS else None


def values_of(arguments: str) -> dict[str, object]:
    """The values of arguments that are an object, by name; none of any others."""
    value = parsed(arguments) if arguments[:1] == "{" else None
    return value if isinstance(value, dict) else {}


def _class(part: str) -> str:
    return LETTERS if part[0].isalpha() else DIGIT * len(part) if part[0].isdecimal() else part
