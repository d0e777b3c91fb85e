"""The mergeable state behind one row of the `patterns` topic: a subject and a sample of the sessions that saw it."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from fleetlore.lore import Level, Pattern
from fleetlore.sample import Seen, SessionSample

# Sessions kept of a failure pattern; how many more there are is estimated. See `fleetlore.sample`.
PATTERN_SESSIONS = 256
# Health rows are rates over all calls, so they are kept exact for longer.
HEALTH_SESSIONS = 512


@dataclass(slots=True, kw_only=True)
class PatternState:
    """Single writer per id. `sample` merges; all else follows from the id and never changes."""

    id: str
    level: Level
    tool: str
    error_class: str
    template: str
    shape: str
    parent: str | None
    call: str | None
    transient: bool
    sample: SessionSample

    @classmethod
    def new(
        cls,
        id: str,
        level: Level,
        tool: str,
        error_class: str = "",
        template: str = "",
        shape: str = "",
        parent: str | None = None,
        call: str | None = None,
        transient: bool = False,
    ) -> PatternState:
        k = HEALTH_SESSIONS if level in ("tool", "call") else PATTERN_SESSIONS
        return cls(
            id=id,
            level=level,
            tool=tool,
            error_class=error_class,
            template=template,
            shape=shape,
            parent=parent,
            call=call,
            transient=transient,
            sample=SessionSample(k),
        )

    def add(self, session: int, seen: Seen) -> bool:
        """Merge what one session saw in; say whether anything changed."""
        return self.sample.add(session, seen)

    def to_pattern(self, tenant: str) -> Pattern:
        sample = self.sample
        return Pattern(
            id=self.id,
            level=self.level,
            tenant=tenant,
            tool=self.tool,
            error_class=self.error_class,
            template=self.template,
            shape=self.shape,
            parent=self.parent,
            call=self.call,
            transient=self.transient,
            calls=sample.calls,
            failures=sample.failures,
            sessions=sample.sessions,
            agents=sample.agents,
            first_seen=sample.first,
            last_seen=sample.last,
        )

    @classmethod
    def restore(cls, body: str, state: str) -> PatternState:
        """From what the store holds: the public form and the sample."""
        pattern = Pattern.from_json(body.encode())
        restored = cls.new(
            pattern.id,
            pattern.level,
            pattern.tool,
            pattern.error_class,
            pattern.template,
            pattern.shape,
            pattern.parent,
            pattern.call,
            pattern.transient,
        )
        restored.sample = SessionSample.from_rows(orjson.loads(state), restored.sample.k)
        return restored

    def state_json(self) -> str:
        return orjson.dumps(self.sample.to_rows()).decode()
