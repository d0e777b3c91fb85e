"""Lore: what comes back to the agents, as it lies on the compacted topics `patterns` and `items`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Any, Literal, TypeVar

import orjson

T = TypeVar("T")

Level = Literal["tool", "call", "family", "class", "exact"]
ItemKind = Literal["recovery", "lesson", "strategy"]

PATTERN_LEVELS: tuple[Level, ...] = ("family", "class", "exact")
HEALTH_LEVELS: tuple[Level, ...] = ("tool", "call")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A failure pattern, or the health of a tool or of a kind of call.

    Attributes:
        id: 32 hex digits (`fleetlore.patterns`).
        level: `family`, `class`, `exact` are failures; `tool` and `call` are health rows, which count successes too.
        parent: the next coarser row: exact → class → family; call → tool.
        call: of an `exact` pattern: the kind of call that met it, whose health row says how often it works.
        transient: a fault that passes by itself (503, time-out, rate limit): weather, never a lesson.
        calls: how many calls (of a failure pattern: the same as `failures`).
        failures: how many of them failed.
        sessions, agents: how many distinct ones saw it.
        first_seen, last_seen: event time in seconds since the Unix epoch.
    """

    id: str
    level: Level
    tenant: str
    tool: str
    error_class: str = ""
    template: str = ""
    shape: str = ""
    parent: str | None = None
    call: str | None = None
    transient: bool = False
    calls: int = 0
    failures: int = 0
    sessions: int = 0
    agents: int = 0
    first_seen: float = 0.0
    last_seen: float = 0.0
    hint: str = ""

    def to_json(self) -> bytes:
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, value: bytes) -> Pattern:
        return _known(cls, orjson.loads(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryItem:
    """Something worth telling the next agent, with its lineage.

    Attributes:
        when: the situation in which it applies, in words.
        tool, pattern, call, task: the same for a machine: the tool, the class-level pattern id, the kind of call (id) and the
            task it is about; empty or None where it is not bound to one.
        remedy: the call that helped, `{"tool": str, "arguments": value}`.
        support: how many distinct sessions back it; `agents`: how many distinct agents.
        sessions: a few of those sessions (hashes are not enough for lineage: a person must be able to look).
        version: of the distiller.
    """

    id: str
    tenant: str
    kind: ItemKind
    title: str
    description: str
    content: str
    when: str
    tool: str = ""
    pattern: str | None = None
    call: str | None = None
    task: str = ""
    remedy: dict[str, Any] | None = None
    support: int = 0
    agents: int = 0
    sessions: tuple[str, ...] = ()
    last_seen: float = 0.0
    version: str = ""

    def to_json(self) -> bytes:
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, value: bytes) -> MemoryItem:
        fields = orjson.loads(value)
        fields["sessions"] = tuple(fields.get("sessions", ()))
        return _known(cls, fields)


def _known(cls: type[T], fields: dict[str, Any]) -> T:
    """Build from what this version knows: a newer writer may have added fields, and an agent is updated last of all."""
    try:
        return cls(**fields)
    except TypeError:
        names = {f.name for f in dataclass_fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: value for name, value in fields.items() if name in names})


def wilson(failures: int, calls: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson score interval of a rate (Wilson 1927): sound for few calls, where 1 of 1 is not 100 %.

    Returns:
        lower and upper bound, both in 0..1; (0, 1) where nothing was seen.
    """
    if calls <= 0:
        return 0.0, 1.0
    rate = failures / calls
    spread = z * math.sqrt(rate * (1 - rate) / calls + z * z / (4 * calls * calls))
    centre = rate + z * z / (2 * calls)
    scale = 1 + z * z / calls
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
