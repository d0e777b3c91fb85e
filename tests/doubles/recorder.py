"""Stands in for the emitter."""

from typing import Any

from fleetlore.wire import events
from fleetlore.wire.events import Event


class Recorder:
    """Keeps the events that it is given, or refuses them."""

    is_stranded = False

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.hurried: list[Event] = []
        self.full = False
        self.dropped = self.sent = self.waiting = 0

    def emit(self, event: Event, *, at_once: bool = False) -> bool:
        if self.full:
            self.dropped += 1
            return False
        self.events.append(event)
        self.hurried += [event] if at_once else []
        return True

    async def flush(self, timeout_seconds: float, *, hurried: bool = True) -> bool:
        return not self.full

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    @property
    def outcomes(self) -> list[dict[str, Any]]:
        """The `outcome` events that were sent."""
        return [event.data for event in self.events if event.kind == "outcome"]

    @staticmethod
    def error(outcome: dict[str, Any]) -> tuple[str, str] | None:
        """Type and text of the error of a call, or None if the call worked."""
        return (outcome[events.ERROR_TYPE], outcome[events.ERROR_MESSAGE]) if events.ERROR_TYPE in outcome else None
