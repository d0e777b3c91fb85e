"""Fleet-wide learning for AI agents: one agent's failure becomes every agent's lesson, within a second."""

from __future__ import annotations

from fleetlore.advice import Advice
from fleetlore.attempts import Attempt, Attempts
from fleetlore.blocking import BlockingAction, BlockingFleet, BlockingSession
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
from fleetlore.events import Event
from fleetlore.fleet import Action, Fleet, Session
from fleetlore.guardian import Budget
from fleetlore.lore import MemoryItem, Pattern
from fleetlore.redaction import redact

__version__ = "0.1.0"

__all__ = [
    "Action",
    "AdapterRefused",
    "Advice",
    "Attempt",
    "Attempts",
    "BlockingAction",
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
    "redact",
]
