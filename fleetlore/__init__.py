"""Learn across a fleet of AI agents: one agent's failure becomes every agent's lesson, within a second.

Names are imported when they are first used, so that `fleetlore --help` imports none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetlore.advice.advice import Advice
    from fleetlore.agent.action import current_session, tool
    from fleetlore.agent.blocking import BlockingFleet, BlockingSession
    from fleetlore.agent.fleet import Action, Fleet, Session, metrics
    from fleetlore.errors import (
        AdapterRefused,
        BrokerUnavailable,
        CallHeld,
        ConfigError,
        FleetloreError,
        InvalidEvent,
        ModelUnavailable,
        NotOpen,
        StackError,
        StoreUnavailable,
    )
    from fleetlore.redact.redact import redact
    from fleetlore.watch.watchdog import Budget
    from fleetlore.wire.events import Event
    from fleetlore.wire.lore import MemoryItem, Pattern

__version__ = "0.2.0"

__all__ = [
    "Action", "AdapterRefused", "Advice", "BlockingFleet", "BlockingSession", "BrokerUnavailable", "Budget",
    "CallHeld", "ConfigError", "Event", "Fleet", "FleetloreError", "InvalidEvent", "MemoryItem", "ModelUnavailable",
    "NotOpen", "Pattern", "Session", "StackError", "StoreUnavailable", "__version__", "current_session", "metrics",
    "redact", "tool",
]  # fmt: skip

_NAMES_OF = {
    "advice.advice": "Advice",
    "agent.action": "current_session tool",
    "agent.blocking": "BlockingFleet BlockingSession",
    "agent.fleet": "Action Fleet Session metrics",
    "redact.redact": "redact",
    "watch.watchdog": "Budget",
    "wire.events": "Event",
    "wire.lore": "MemoryItem Pattern",
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names.split()}

# The import of the room would hide the public function of this name, so it comes first.
import_module("fleetlore.redact")
del redact


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF.get(name, 'errors')}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
