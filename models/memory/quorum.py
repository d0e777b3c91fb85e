"""Hold a remedy back that could do harm until several agents stand behind it."""

from __future__ import annotations

from fleetlore.fingerprint.fingerprint import arguments_text
from fleetlore.watch.safety import dangers
from fleetlore.wire.lore import MemoryItem

QUORUM_AGENTS = 3


def is_unconfirmed(item: MemoryItem) -> bool:
    """Whether fewer agents than a quorum back a remedy that breaks a safety rule or names an address.

    Safety rules are those of which an agent is warned before the call (`fleetlore.watch.safety`): what is fetched and
    run, destroyed or leaked, and calls that hold a secret. An address is any with a scheme, such as a download's.
    """
    remedy = item.remedy
    if remedy is None or "tool" not in remedy or item.agents >= QUORUM_AGENTS:
        return False
    arguments = remedy.get("arguments")
    text = arguments_text(arguments)
    # An item masks what may be somebody's own; an address is then this mark.
    return "://" in text or "<url>" in text or bool(dangers(remedy["tool"], arguments))
