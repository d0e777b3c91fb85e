"""Keep what the page shows at hand: the lore, the adapters, the dead letters, the figures of the processes.

Nothing here belongs to a worker. The page follows the topics as an agent does and asks the store only for a session,
so it runs beside `fleetlore up`, in compose or in a cluster, and slows none of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fleetlore.adapters.listing import AdapterListing, read_adapters
from fleetlore.clock import Clock, SystemClock
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable, StoreUnavailable
from fleetlore.kafka.follower import Fetched, Follower
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.replica import LoreReplica
from fleetlore.store.connection import connect, message_of, milvus_errors
from fleetlore.store.search import quoted
from fleetlore.wire import decision
from fleetlore.wire.dead_letter import DeadLetterRecord, read_dead_letter
from fleetlore.wire.decision import Decision
from fleetlore.wire.principals import Principals
from fleetlore.wire.topics import topic
from models.judge.session_state import SessionState
from sinks.milvus import row_id
from streams.console.scrape import Figures, Scraper

__all__ = ["Sources"]

_ADAPTERS_SECONDS = 3.0
_LETTERS_KEPT = 200
_SESSIONS_OF_AN_AGENT = 100
_STORE_SECONDS = 5.0
_FETCH_WAIT_MS = 500


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known at one moment. `letters`: the newest dead letters, oldest first. `decisions`: the newest about each
    item, pattern and agent, by its key. `loaded`: whether all lore that existed when the page started is known.
    `self_declared`: whether agents are who they say."""

    tenant: str
    now: float
    index: LoreIndex
    figures: Figures = field(default_factory=Figures)
    adapters: AdapterListing = field(default_factory=lambda: AdapterListing((), (), ()))
    letters: Sequence[DeadLetterRecord] = ()
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    loaded: bool = True
    self_declared: bool = True


class Judged(NamedTuple):
    """A session of an agent and its verdict."""

    session: str
    task: str
    label: str


class Sources:
    """Follows everything from entering to leaving its context; survives outages of the broker and the endpoints.

    Args:
        metrics: addresses of the metrics endpoints of workers and trainer, without `/metrics`.
    """

    def __init__(self, settings: Settings, tenant: str, metrics: Sequence[str], clock: Clock | None = None) -> None:
        self._settings = settings
        self._tenant = tenant
        self._clock = clock or SystemClock()
        self._replica = LoreReplica(settings.cluster, tenant, fetch_wait_ms=_FETCH_WAIT_MS, clock=self._clock)
        self._scraper = Scraper(metrics, self._clock)
        self._adapters = AdapterListing((), (), ())
        self._letters: deque[DeadLetterRecord] = deque(maxlen=_LETTERS_KEPT)
        self._dead_letters = Follower(
            settings.cluster,
            [topic(tenant, "dead-letters")],
            self._take_letters,
            what="dead letters",
            fetch_wait_ms=_FETCH_WAIT_MS,
            newest=_LETTERS_KEPT,
            clock=self._clock,
        )
        self._decisions: dict[str, Decision] = {}
        self._decided = Follower(
            settings.cluster,
            [topic(tenant, decision.TOPIC)],
            self._take_decisions,
            what="decisions",
            fetch_wait_ms=_FETCH_WAIT_MS,
            clock=self._clock,
        )
        self._store: Any = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Sources:
        await self._replica.start()
        running = (self._scraper.run(), self._dead_letters.run(), self._decided.run(), self._watch_adapters())
        self._tasks = [asyncio.create_task(each) for each in running]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, self._replica.close(), return_exceptions=True)
        if self._store is not None:
            await asyncio.to_thread(self._store.close)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self._tenant,
            self._clock.now(),
            self._replica.index,
            self._scraper.figures,
            self._adapters,
            tuple(self._letters),
            dict(self._decisions),
            self._replica.loaded,
            Principals.of(self._settings.principal_key) is None,
        )

    async def session(self, id: str) -> SessionState | None:
        """The row of a session, as the judging stage keeps it; None where there is none.

        Raises:
            StoreUnavailable: Milvus does not answer.
        """
        clause = f"id == {quoted(row_id(self._tenant, id))}"
        rows = await asyncio.to_thread(self._rows, clause, ("state",), 1)
        return SessionState.from_json(rows[0]["state"]) if rows else None

    async def sessions_of(self, agent: str) -> list[Judged]:
        """Judged sessions of an agent, by their ids; at most 100 of them.

        Raises:
            StoreUnavailable: Milvus does not answer.
        """
        clause = f"tenant == {quoted(self._tenant)} and agent == {quoted(agent)}"
        rows = await asyncio.to_thread(self._rows, clause, ("id", "task", "label"), _SESSIONS_OF_AN_AGENT)
        return sorted(Judged(row["id"].partition("/")[2], row["task"], row["label"]) for row in rows)

    def _rows(self, clause: str, fields: Sequence[str], most: int) -> list[dict[str, Any]]:
        try:
            if self._store is None:
                self._store = connect(self._settings.milvus, self._settings.milvus_token, _STORE_SECONDS)
            found = self._store.query(
                "judgments", filter=clause, output_fields=list(fields), limit=most, timeout=_STORE_SECONDS
            )
            return list(found)
        except milvus_errors() as error:
            raise StoreUnavailable(f"Milvus at {self._settings.milvus}: {message_of(error)}") from error

    async def _take_letters(self, fetched: Fetched) -> None:
        for records in fetched.values():
            for record in records:
                letter = read_dead_letter(record)
                if isinstance(letter, DeadLetterRecord):
                    self._letters.append(letter)

    async def _take_decisions(self, fetched: Fetched) -> None:
        for records in fetched.values():
            for record in records:
                with contextlib.suppress(ValueError):  # of a release that says it in another way
                    taken = Decision.from_json(record.value or b"")
                    self._decisions[taken.key] = taken

    async def _watch_adapters(self) -> None:
        while True:
            with contextlib.suppress(BrokerUnavailable):
                self._adapters = await read_adapters(self._settings.cluster, self._tenant)
            await asyncio.sleep(_ADAPTERS_SECONDS)
