"""Make the two texts that are compared when ways out are ranked: of a call that failed, and of what got past one."""

from __future__ import annotations

ERROR_CHARACTERS = 250
CALL_CHARACTERS = 400
FIX_CHARACTERS = 400
GOAL_CHARACTERS = 150


def query_text(error: str, call: str, goal: str) -> str:
    """Of a call that failed, with what its session is after."""
    return f"{error[:ERROR_CHARACTERS]} {call[:CALL_CHARACTERS]} {goal[:GOAL_CHARACTERS]}"


def answer_text(error: str, call: str, fix: str) -> str:
    """Of a call that failed and the one that worked after it."""
    return f"{error[:ERROR_CHARACTERS]} {call[:CALL_CHARACTERS]} {fix[:FIX_CHARACTERS]}"
