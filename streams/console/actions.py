"""Do what a person decides on the page: roll a channel back to a version, pin it there, revoke a version.

Each is the command of the same name (`fleetlore adapters rollback|pin|revoke`), signed with the same key, and each is
written to the log with what it did.
"""

from __future__ import annotations

import logging
from typing import ClassVar

from fleetlore.config import Settings
from fleetlore.wire.adapter_manifest import ADAPTERS, CALLS
from sinks.adapter_publisher import AdapterPublisher

log = logging.getLogger(__name__)

REASON = "decided on the console"


class Actions:
    """Needs the signing key, `FLEETLORE_SIGNING_KEY` or that of the stack."""

    names: ClassVar = {
        "rollback": "Point the channel to this version; agents swap between two actions.",
        "pin": "Point the channel to this version and keep it there until it is unpinned.",
        "revoke": "Revoke this version for ever; the newest other one replaces it.",
    }

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def decide(self, action: str, tenant: str, adapter: str, version: str) -> None:
        """Raises ConfigError where there is no key or no such version, BrokerUnavailable where no broker answers."""
        (kind,) = (each for each in ADAPTERS if each.name == adapter)
        async with AdapterPublisher.from_settings(kind, self._settings) as publisher:
            if action == "revoke":
                await publisher.revoke(tenant, version, REASON)
            else:
                pinned = action == "pin" or adapter == CALLS
                await publisher.rollback(tenant, version, REASON, pinned=pinned)
        log.warning("console: %s of %s %s of tenant %s", action, adapter, version, tenant)
