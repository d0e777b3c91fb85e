"""Write the hint on a failure pattern for a person.

A hint names what got others past the failure, and how many they were. Without such evidence, or with that of one
session among many, it says what usually helps (`fleetlore.recall.default_hints`), and that it is only that. A transient
error is reported while it lasts and is never a lesson.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetlore.recall.default_hints import default_hint
from fleetlore.recall.index import TRIED_SESSIONS
from fleetlore.stats.intervals import wilson
from fleetlore.wire.lore import MemoryItem, Pattern

# A transient error counts its agents, halved every minute. Below this it has passed: one agent's after two minutes.
_TRANSIENT_HALF_LIFE_SECONDS = 60.0
_TRANSIENT_PASSED = 0.25
TRANSIENT_SECONDS = 300.0


def transient_weight(pattern: Pattern, now: float) -> float:
    """Weight of a transient pattern: the agents that met it lately, halved every minute; 0 once it has passed."""
    age = max(0.0, now - pattern.last_seen)
    if not pattern.transient or age > TRANSIENT_SECONDS:
        return 0.0
    weight = max(pattern.agents_lately, 1) * 0.5 ** (age / _TRANSIENT_HALF_LIFE_SECONDS)
    return weight if weight >= _TRANSIENT_PASSED else 0.0


def hint_text(pattern: Pattern, now: float, recoveries: Sequence[MemoryItem] = ()) -> str | None:
    """What to say about a pattern, in one line; None where there is nothing to say.

    The words of patterns and items come from other sessions: the caller marks them as data.

    Args:
        now: wall time in seconds.
        recoveries: what got sessions past this pattern, the best backed first (`LoreIndex.recoveries` of its class).
    """
    if pattern.transient:
        return _transient(pattern, now) if transient_weight(pattern, now) else None
    helped = [item for item in recoveries if item.kind == "recovery"]
    advice = default_hint(pattern)
    # What one of many sessions did is worse backed than what usually helps.
    if helped and (advice is None or helped[0].support > 1 or pattern.sessions < TRIED_SESSIONS):
        return _recovered(pattern, helped[0], now)
    return advice and f"{advice} (A rule of thumb. {_met(pattern, now)}.)"


def _recovered(pattern: Pattern, item: MemoryItem, now: float) -> str:
    """How sure: the agents and sessions, and their share of those that met the failure, where that can be told."""
    last = _ago(now - item.last_seen)
    if item.support <= 1:
        return f"{item.description} (Seen once, {last}.)"
    who = f"{count(item.agents, 'agent')} in {count(item.support, 'session')}, last {last}"
    return f"{item.description} (Worked for {who}{_share('; of', item.support, pattern.sessions, 'that met it')}.)"


def _transient(pattern: Pattern, now: float) -> str:
    what = pattern.template if any(map(str.isalpha, pattern.template)) else pattern.error_class
    agents = max(pattern.agents_lately, 1)
    return (
        f"{count(agents, 'agent')} met “{what}” within two minutes, the last {_ago(now - pattern.last_seen)}: "
        "it passes by itself, wait and try again."
    )


def _met(pattern: Pattern, now: float) -> str:
    by = f"{count(pattern.agents, 'agent')} in {count(pattern.sessions, 'session')}"
    met = f"Met by {by}, last {_ago(now - pattern.last_seen)}"
    if not pattern.sessions_ended:
        return met
    well = pattern.sessions_ended - pattern.sessions_failed
    return f"{met}; {well}{_share(' of', well, pattern.sessions_ended, 'ended well')}"


def _share(of: str, number: int, total: int, what: str) -> str:
    """ "; of 9 that met it, so for 20% to 80%", without the interval where it would say nothing; empty for no share."""
    if not 0 <= number <= total:
        return ""
    low, high = wilson(number, total)
    return f"{of} {total} {what}" + (f", so {low:.0%} to {high:.0%}" if total >= TRIED_SESSIONS else "")


def count(number: int, noun: str) -> str:
    """1 session, 12 sessions, 1,200 sessions."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _ago(seconds: float) -> str:
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            return f"{count(int(seconds // size), unit)} ago"
    return f"{count(max(0, int(seconds)), 'second')} ago"
