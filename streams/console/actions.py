"""Carry out decisions that are made on the page, each as the command of the same name."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

from fleetlore.config import Settings
from fleetlore.errors import FleetloreError
from fleetlore.redact.redact import redact
from fleetlore.wire.adapter_manifest import ADAPTERS
from fleetlore.wire.lore import Decision, DecisionKind
from sinks.adapter_publisher import AdapterPublisher
from streams.offline.operator_word import decide, reconsider

__all__ = ["Actions"]

log = logging.getLogger(__name__)

_DISTRUST_SECONDS = 300.0
_HIDE = {
    "revoke": "Hide it from all agents, whatever is learned later. This can be undone.",
    "show": "Show it to agents again in its current state.",
}
_OF_LORE: Mapping[DecisionKind, Mapping[str, str]] = {
    "hint": {
        "approve": "Show it to agents, and answer its request for review.",
        "reject": "Hide it from all agents. This can be undone.",
        "expire": "End it now.",
    },
    "item": _HIDE,
    "pattern": _HIDE,
    "agent": {
        "distrust": "Remove its contributions from everything learned. This can be undone.",
        "trust": "Count its contributions again, old and new.",
    },
}
_OF_VERSIONS = {
    "rollback": "Point the channel to this version; agents swap between two actions.",
    "pin": "Point the channel to this version and keep it there until it is unpinned.",
    "unpin": "Let the trainer move the channel again.",
    "revoke": "Revoke this version for ever; the newest other one replaces it.",
}


class Actions:
    """Decides for one tenant.

    Adapter versions need the signing key. `progress`: state of this page's decisions about agents, by agent.
    """

    def __init__(self, settings: Settings, tenant: str) -> None:
        self._settings = settings
        self._tenant = tenant
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self.progress: dict[str, str] = {}

    def offered(self, kind: str) -> Mapping[str, str]:
        """Return the actions on an `item`, a `pattern`, a `hint`, an `agent` or an adapter, with their meanings."""
        lore = _lore(kind)
        if lore is not None:
            return _OF_LORE[lore]
        return _OF_VERSIONS if self._settings.signing_key and any(each.name == kind for each in ADAPTERS) else {}

    async def decide(self, action: str, kind: str, id: str, *, by: str, why: str) -> None:
        """Raises ConfigError: the version does not exist or may not be moved."""
        by, why = redact(by), redact(why)
        log.warning("console: %s decides to %s %s %s of tenant %s: %s", by, action, kind, id, self._tenant, why)
        lore = _lore(kind)
        if lore is None:
            return await self._move(action, kind, id, f"{why} ({by})")
        on = action in ("revoke", "distrust")
        decided = Decision(kind=lore, id=id, on=on, by=by, why=why, time=time.time())
        if lore != "agent":
            return await decide(self._settings, self._tenant, decided)
        if id in self._under_way:
            self._under_way[id].cancel()
        self._under_way[id] = asyncio.create_task(self._reconsider(decided))

    async def publish(self, decisions: Sequence[Decision]) -> None:
        for decided in decisions:
            log.warning(
                "console: %s decides on %s of tenant %s: %s", decided.by, decided.key, self._tenant, decided.why
            )
            await decide(self._settings, self._tenant, decided)

    async def close(self) -> None:
        for task in self._under_way.values():
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def _reconsider(self, decided: Decision) -> None:
        self.progress[decided.id] = "under way"
        try:
            known = await reconsider(self._settings, self._tenant, decided, _DISTRUST_SECONDS)
        except FleetloreError as error:
            log.warning("console: %s is not reconsidered: %s", decided.id, error)
            self.progress[decided.id] = f"not done: {error}"
        else:
            found = f"{len(known.patterns)} patterns and {len(known.items)} items"
            self.progress[decided.id] = f"done: {found} considered again"

    async def _move(self, action: str, adapter: str, version: str, reason: str) -> None:
        (kind,) = (each for each in ADAPTERS if each.name == adapter)
        async with AdapterPublisher.from_settings(kind, self._settings) as publisher:
            if action == "revoke":
                await publisher.revoke(self._tenant, version, reason)
            elif action == "unpin":
                await publisher.unpin(self._tenant, reason)
            else:
                await publisher.rollback(self._tenant, version, reason, pinned=action == "pin")


def _lore(kind: str) -> DecisionKind | None:
    return next((each for each in _OF_LORE if each == kind), None)
