"""Make the two texts that are compared when ways out are ranked: of a call that failed, and of what got past one."""

from __future__ import annotations

_ERROR_CHARACTERS = 250
_CALL_CHARACTERS = 400
_FIX_CHARACTERS = 400
_GOAL_CHARACTERS = 150


def query_text(error: str, call: str, goal: str) -> str:
    """Of a call that failed, with what its session is after."""
    return f"{error[:_ERROR_CHARACTERS]} {call[:_CALL_CHARACTERS]} {goal[:_GOAL_CHARACTERS]}"


def answer_text(error: str, call: str, fix: str) -> str:
    """Of a call that failed and the one that worked after it."""
    return f"{error[:_ERROR_CHARACTERS]} {call[:_CALL_CHARACTERS]} {fix[:_FIX_CHARACTERS]}"
