"""Count what a value holds before it is copied, for what is shared in it is copied each time; and cut long texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["UNCUT", "cut_text", "weight", "whole_tokens"]

UNCUT = 2**62
_OF_A_VALUE = 8
_CONTAINERS = frozenset({dict, list, tuple})
_LONGEST_TOKEN = 512
_OF_NO_TOKEN = re.compile(r"[^\w+/=.~-]")


def weight(value: Mapping[str, Any] | Sequence[Any], most: int, longest: int = UNCUT) -> int:
    """Characters of the texts in a value, and eight for each member; ends once they are more than `most`.

    What is shared counts as often as it would be copied: twenty lists that hold each other twice have a million
    members. Keys and members of types that JSON does not know count little; whoever copies them has to look.

    Args:
        longest: as much of each text counts.
    """
    found, places = 0, [value]
    for place in places:
        found += _OF_A_VALUE * len(place)
        if found > most:
            break
        for member in place.values() if type(place) is dict else place:
            kind = type(member)
            if kind is str:
                found += len(member) if len(member) < longest else longest
            elif kind in _CONTAINERS:
                places.append(member)
    return found


def cut_text(text: str, longest: int) -> str:
    """The text, or its first characters and how many are missing."""
    if len(text) <= longest:
        return text
    kept = whole_tokens(text, longest)
    return f"{text[:kept]}… [{len(text) - kept} characters cut]"


def whole_tokens(text: str, longest: int) -> int:
    """Where to cut a longer text: before a token, for half a secret is not recognised as one."""
    start = max(0, longest - _LONGEST_TOKEN)
    ends = [start + match.end() for match in _OF_NO_TOKEN.finditer(text[start:longest])]
    return ends[-1] if ends else longest
