"""Name the way out of each kind of loop, and weigh faults that pass by themselves."""

from __future__ import annotations

from fleetlore.wire.lore import Pattern

__all__ = ["count", "transient_weight", "way_out_of_loop"]

# A transient error counts its agents, halved every minute. Below this it has passed: one agent's after two minutes.
_TRANSIENT_HALF_LIFE_SECONDS = 60.0
_TRANSIENT_PASSED = 0.25
TRANSIENT_SECONDS = 300.0

# What leads out of each kind of loop, by a part of its template (`fleetlore.fingerprint.loops.LoopPattern`).
_OUT_OF_LOOPS = {
    "the same call": "Use that result, or ask something else; to wait for a change, wait longer between the calls.",
    " calls in turn": "Take a step that is not one of them.",
    "small changes": "Small changes do not help: look up what the tool takes, or use another tool.",
}
_OUT_OF_FAILURES = "It will fail again: change what the error is about, or do something else."


def way_out_of_loop(template: str, *, failed: bool) -> str:
    """Return what leads out of a loop, from its template. `failed`: every call of the loop fails."""
    kind = next((kind for kind in _OUT_OF_LOOPS if kind in template), "small changes")
    return _OUT_OF_FAILURES if failed and kind == "the same call" else _OUT_OF_LOOPS[kind]


def transient_weight(pattern: Pattern, now: float) -> float:
    """Weight of a transient pattern: the agents that met it lately, halved every minute; 0 once it has passed."""
    age = max(0.0, now - pattern.last_seen)
    if not pattern.transient or age > TRANSIENT_SECONDS:
        return 0.0
    weight = max(pattern.agents_lately, 1) * 0.5 ** (age / _TRANSIENT_HALF_LIFE_SECONDS)
    return weight if weight >= _TRANSIENT_PASSED else 0.0


def count(number: int, noun: str) -> str:
    """1 session, 12 sessions, 1,200 sessions."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
