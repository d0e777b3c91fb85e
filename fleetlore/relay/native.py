"""Answer agents that keep their sessions themselves (`Fleet(relay=…)`): what they follow, and what they send."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

import msgspec
from aiokafka.errors import KafkaError
from starlette.exceptions import HTTPException

from fleetlore.agent.fleet import Fleet
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.kafka.client import ANSWER_SECONDS, connected, make_producer
from fleetlore.relay.callers import Caller
from fleetlore.relay.mirror import Mirror
from fleetlore.relay.sessions import MAX_SESSIONS, BufferFull
from fleetlore.wire import definitions
from fleetlore.wire import events as names
from fleetlore.wire.events import Event
from fleetlore.wire.relayed import ADAPTERS, LORE, Followed, Following
from fleetlore.wire.topics import topic

__all__ = ["Native"]

_ACKS = "adapters.acks"
_LONGEST_WAIT_SECONDS = 60.0


class Native:
    """What such agents of all tenants share. Of their sessions it holds how far each has come, and no more."""

    def __init__(self) -> None:
        self._mirrors: dict[tuple[str, tuple[str, ...]], Mirror] = {}
        # By tenant, agent and session: the number of the last event that was taken. An agent that is told that its
        # events are not stored sends them again, and an outage would fill the buffer with them.
        self._last: OrderedDict[tuple[str, str, str], int] = OrderedDict()

    async def close(self) -> None:
        """Follow no more."""
        await asyncio.gather(*(each.close() for each in self._mirrors.values()))

    async def follow(self, fleet: Fleet, body: bytes) -> bytes:
        """Records that an agent has not got.

        Raises:
            HTTPException: it asks for other topics (400), or no broker answers (503).
            DecodeError: the body is none.
        """
        asked = msgspec.msgpack.decode(body, type=Following)
        if asked.topics not in (LORE, ADAPTERS):
            raise HTTPException(400, f"an agent follows {LORE} or {ADAPTERS}, not {asked.topics}")
        key = fleet.tenant, asked.topics
        mirror = self._mirrors.get(key) or self._mirrors.setdefault(key, Mirror(fleet, asked.topics))
        records = None
        if asked.wait:
            records = await mirror.since(asked.positions, min(asked.wait, _LONGEST_WAIT_SECONDS))
        elif await mirror.is_up_to_date():
            records = []
        if records is None:
            raise HTTPException(503, "no broker answers this relay")
        return msgspec.msgpack.encode(Followed(mirror.ends(), records))

    def take(self, fleet: Fleet, event: Event) -> bool:
        """Send on an event of a session whose agent has numbered it; False where it was taken before.

        Raises:
            BufferFull: it was not sent.
        """
        key = fleet.tenant, event.agent, event.session
        if event.sequence <= self._last.get(key, -1):
            return False
        if not fleet.emitter.emit(event, at_once=_is_news(fleet, event)):
            raise BufferFull
        self._last[key] = event.sequence
        self._last.move_to_end(key)
        if len(self._last) > MAX_SESSIONS:
            self._last.popitem(last=False)
        return True

    async def record(self, fleet: Fleet, caller: Caller, name: str, key: str, value: bytes) -> None:
        """Send what an agent says beside events: what its models are given, and what became of an adapter.

        Raises:
            HTTPException: it is neither (404), of another agent than the token (403), or the broker has not got it
                (503).
            ConfigError, DecodeError: it is malformed.
        """
        if name == definitions.TOPIC:
            given = definitions.Definitions.from_json(value)
            fleet.definitions.name(given.system, given.tools)
            stored = await fleet.definitions.flush(ANSWER_SECONDS)
        elif name == _ACKS:
            said = msgspec.json.decode(value, type=dict[str, Any])
            if caller.sure and said.get("agent") != caller.agent:
                raise HTTPException(403, f"the token is of agent {caller.agent}")
            stored = await _sent(fleet, _ACKS, key, value)
        else:
            raise HTTPException(404, f"an agent writes no {name}")
        if not stored:
            raise HTTPException(503, "the broker has not taken it")


async def _sent(fleet: Fleet, name: str, key: str, value: bytes) -> bool:
    try:
        async with asyncio.timeout(ANSWER_SECONDS), connected(make_producer(fleet.settings.cluster)) as producer:
            await producer.send_and_wait(topic(fleet.tenant, name), value, key=key.encode())
    except (KafkaError, OSError):  # a time-out is one
        return False
    return True


def _is_news(fleet: Fleet, event: Event) -> bool:
    """Whether it is a failure that no agent met, as far as known here: others may be about to make the same call."""
    error = event.data.get(names.ERROR_TYPE), event.data.get(names.ERROR_MESSAGE)
    if event.kind != "outcome" or error == (None, None):
        return False
    failure = failure_of(event.data[names.TOOL], event.data.get(names.ARGUMENTS), *error)
    return not failure.transient and failure.exact not in fleet.replica.index.patterns
