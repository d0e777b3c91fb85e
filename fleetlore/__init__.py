"""Fleet-wide learning for AI agents: one agent's failure becomes every agent's lesson, within a second."""

from __future__ import annotations

from fleetlore.agent.attempts import Attempt, Attempts
from fleetlore.agent.blocking import BlockingFleet, BlockingSession
from fleetlore.agent.current import current_session
from fleetlore.agent.fleet import Action, Fleet, Session
from fleetlore.agent.tool import tool
from fleetlore.errors import (
    AdapterRefused,
    BrokerUnavailable,
    ConfigError,
    FleetloreError,
    InvalidEvent,
    ModelUnavailable,
    StackError,
    StoreUnavailable,
)
from fleetlore.recall.advice import Advice
from fleetlore.redact.redact import redact
from fleetlore.watch.watchdog import Budget
from fleetlore.wire.events import Event
from fleetlore.wire.lore import MemoryItem, Pattern

__version__ = "0.1.0"

__all__ = [
    "Action",
    "AdapterRefused",
    "Advice",
    "Attempt",
    "Attempts",
    "BlockingFleet",
    "BlockingSession",
    "BrokerUnavailable",
    "Budget",
    "ConfigError",
    "Event",
    "Fleet",
    "FleetloreError",
    "InvalidEvent",
    "MemoryItem",
    "ModelUnavailable",
    "Pattern",
    "Session",
    "StackError",
    "StoreUnavailable",
    "__version__",
    "current_session",
    "redact",
    "tool",
]
