"""Hold what an agent uses: a `Fleet`, its sessions and the actions in them.

    async with Fleet("billing-agent", data="./lore") as fleet:
        async with fleet.session("refund order 17", task="refund") as session:
            print(session.advise("sql", {"query": query}).text)
            async with session.action("sql", {"query": query}) as action:
                action.result = await run(query)
            session.succeed()

Only entering a fleet waits for the broker. Events that cannot be sent are dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

import numpy as np

from fleetlore.advice.advice import Advice
from fleetlore.advice.provenance import new_nonce
from fleetlore.agent.action import Action
from fleetlore.agent.adapters import AgentAdapters
from fleetlore.agent.session import Session
from fleetlore.agent.session_parts import Guard, Lifetime, SessionOptions, arguments_of
from fleetlore.calls.context import keep_newest
from fleetlore.calls.model import CallModel
from fleetlore.clock import Clock, SystemClock
from fleetlore.cluster import Bootstrap, Relay, StackFolder, named
from fleetlore.config import DEFAULT_TENANT, Settings, check_tenant
from fleetlore.errors import ConfigError
from fleetlore.kafka.emitter import Emitter
from fleetlore.kafka.encode import personal_data_of
from fleetlore.limits import process_lock
from fleetlore.recall.replica import LoreReplica
from fleetlore.recall.search import LoreSearch
from fleetlore.wire import events as names
from fleetlore.wire.events import Event, Outcome

if TYPE_CHECKING:
    from fleetlore.lora.follow import PolicyFollower

__all__ = ["Action", "Fleet", "Session", "metrics"]

log = logging.getLogger(__name__)

_SESSIONS_REMEMBERED = 10_000
_MOST_TIMES = 4096
_counting = process_lock()
_fleets: WeakSet[Fleet] = WeakSet()
_seconds: deque[float] = deque(maxlen=_MOST_TIMES)
_counted: Counter[str] = Counter()


class Fleet:
    """One agent's membership in a fleet: an async context manager.

    Args:
        agent: 1–256 printable characters.
        broker: Kafka bootstrap servers; default: `FLEETLORE_BROKER`.
        data: folder of an embedded stack (`fleetlore up --data DIR`), instead of `broker`.
        relay: address of a `fleetlore relay` (`unix:PATH` or `http(s)://HOST:PORT`), instead of both; needs the extra
            `[relay]`; default: `FLEETLORE_RELAY`.
        relay_token: default: `FLEETLORE_RELAY_TOKEN`.
        policy: follower of the LoRA of this agent's language model.
        max_buffered_events: more are dropped while the broker is away.
        fetch_wait_ms: how long the broker may hold a request for lore; default: `FLEETLORE_FETCH_WAIT_MS`.
        mask_personal: regions whose forms of personal data are masked, or `anywhere`; needs the extra `[personal]`;
            default: `FLEETLORE_MASK_PERSONAL`.
        holdout_share: share of tips that is withheld at random, 0..1; default: `FLEETLORE_HOLDOUT_SHARE`.
        hold: calls that are held once: `off`, `sure` or `always`; default: `FLEETLORE_HOLD`.
        ready_seconds: how long entering waits for the lore.

    Raises:
        ConfigError: a name or setting is malformed, or `data` does not exist or comes with `broker`.
        ModelUnavailable: an extra is missing.
    """

    def __init__(
        self,
        agent: str,
        *,
        broker: str | None = None,
        data: str | Path | None = None,
        relay: str | None = None,
        relay_token: str | None = None,
        tenant: str = DEFAULT_TENANT,
        policy: PolicyFollower | None = None,
        max_buffered_events: int = 10_000,
        fetch_wait_ms: int | None = None,
        holdout_share: float | None = None,
        hold: str | None = None,
        mask_personal: tuple[str, ...] | None = None,
        ready_seconds: float = 2.0,
        clock: Clock | None = None,
    ) -> None:
        self.agent = names.checked_name("agent", agent)
        self.tenant = check_tenant(tenant)
        self.clock = clock or SystemClock()
        self.lock = threading.RLock()
        self.guard = Guard(f"agent {agent}")
        self._lifetime = Lifetime(f"the fleet of agent {agent}")
        self._sessions_used: dict[str, None] = {}
        if not 0 <= ready_seconds < inf:
            raise ConfigError(f"ready_seconds must be 0 or above and finite, not {ready_seconds}")
        if sum(each is not None for each in (data, broker, relay or None)) > 1:
            raise ConfigError("give a Fleet one of data=…, broker=… and relay=…: each says where the fleet is")
        if relay is None and (data is not None or broker is not None):
            relay = ""  # the agent's `broker` or `data` counts before the environment's relay
        self.settings = Settings.from_data_dir(
            data,
            must_run=False,
            unknown_refused=False,  # logged only: the agent's work goes on
            broker=broker,
            relay=relay,
            relay_token=relay_token,
            fetch_wait_ms=fetch_wait_ms,
            holdout_share=holdout_share,
            hold=hold,
            mask_personal=mask_personal,
        )
        self.personal = personal_data_of(self.settings.mask_personal)
        self.bootstrap: Bootstrap = self.settings.cluster
        if data is not None:
            self.bootstrap = StackFolder(Path(data))
        elif address := self.settings.relay:
            self.bootstrap = Relay(
                address=address, agent=self.agent, tenant=self.tenant, token=self.settings.relay_token
            )
        key = "" if self.settings.relay else self.settings.principal_key  # a relay signs what it sends
        self.emitter = Emitter(
            self.bootstrap, self.tenant, max_events=max_buffered_events, personal=self.personal, principal_key=key
        )
        self.reviews = Emitter(self.bootstrap, self.tenant, name="feedback", principal_key=key)
        self.replica = LoreReplica(
            self.bootstrap,
            self.tenant,
            fetch_wait_ms=self.settings.fetch_wait_ms,
            clock=self.clock,
            most_bytes=self.settings.replica_mb * 1e6,
            lock=self.lock,
        )
        self.lore_search = LoreSearch(self.settings, self.tenant, data)
        self.new_nonce = new_nonce
        # Called with session id and advice, in the asking task or thread.
        self.on_advice: list[Callable[[str, Advice], None]] = []
        self._policy = policy
        self.adapters = AgentAdapters(self)
        self._feedback = 0
        self._ready_seconds, self._warns_of_missing_lore = ready_seconds, False

    @property
    def is_forked(self) -> bool:
        """Whether a parent process opened it: its lock may then never be free."""
        return self._lifetime.is_forked

    @property
    def _senders(self) -> tuple[Emitter, Emitter]:
        return self.emitter, self.reviews

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.agent} of tenant {self.tenant} at {self.bootstrap}, {self._lifetime}>"

    async def start(self) -> None:
        """Connect and wait for the lore. Raises NotOpen: entered before."""
        self._lifetime.enter()
        try:
            await self.adapters.start()
            for each in (*self._senders, self.replica):
                await each.start()
            with _counting:
                _fleets.add(self)
            self._warns_of_missing_lore = True
            if self._ready_seconds:
                await Fleet.ready(self, self._ready_seconds)
                self.check_lore()
        except BaseException:
            await Fleet.close(self, 0.0)
            raise

    async def close(self, timeout_seconds: float = 2.0) -> None:
        """Send the buffer within the limit, then stop. Never hangs."""
        if self._lifetime.is_forked:
            return
        self._lifetime.leave()
        self.lore_search.close()
        if self.emitter.is_stranded:
            return await self.emitter.close(0.0)
        self._stopping = asyncio.create_task(self._stop(timeout_seconds))
        try:
            await asyncio.shield(self._stopping)
        except asyncio.CancelledError:  # a task left behind would read for ever
            await asyncio.wait([self._stopping])  # it goes on if this is cancelled again
            raise

    async def _stop(self, timeout_seconds: float) -> None:
        await asyncio.gather(*(sender.close(timeout_seconds) for sender in self._senders))
        await asyncio.gather(self.replica.close(), self.adapters.close())
        with _counting:
            if self in _fleets:  # counters never fall
                _fleets.discard(self)
                _counted.update(events_sent_total=self.sent, events_dropped_total=self.dropped)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def ready(self, timeout_seconds: float) -> bool:
        """Wait for the current lore and adapters. Return False on time-out."""
        waits = self.replica.caught_up(timeout_seconds), self.adapters.caught_up(timeout_seconds)
        return all(await asyncio.gather(*waits))

    def check_lore(self) -> None:
        if self._warns_of_missing_lore:
            self._warns_of_missing_lore = False
            if not self.replica.loaded:
                at = named(self.bootstrap)
                log.warning("the lore of %s has not arrived: advice is empty until it does (Fleet.ready)", at)

    @arguments_of(SessionOptions)
    def session(self, *args: Any, **kwargs: Any) -> Session:
        """Return a session, a context manager, `with` or `async with`. See `SessionOptions`."""
        return Session(self, SessionOptions(*args, **kwargs))

    def begin_session(self, session_id: str) -> None:
        """Note that a session begins.

        Raises:
            ConfigError: one of this id has begun before, so their events would mix.
            NotOpen: the fleet was left, or entered before a fork.
        """
        if not self._lifetime.is_new:
            self._lifetime.check()
        elif not self._sessions_used:
            log.warning("%r was not entered: until it is, nothing is sent and advice is empty", self)
        with self.lock:
            if session_id in self._sessions_used:
                raise ConfigError(f"session {session_id!r} has begun before; a further part of it takes resume=True")
            keep_newest(self._sessions_used, session_id, None, _SESSIONS_REMEMBERED)

    def feedback(self, session_id: str, outcome: Outcome, reward: float | None = None) -> bool:
        """Correct how a session ended. Return whether the event was kept.

        The agent needs write access to the topic `feedback`. Feedback outranks the environment's reward, except about
        the agent's own sessions.

        Raises:
            ConfigError: the session's id is malformed, or the reward is no finite number.
            NotOpen: the fleet was left, or entered before a fork.
        """
        if not self._lifetime.is_new:
            self._lifetime.check()
        now = self.clock.now()
        data: dict[str, Any] = {names.OUTCOME: outcome}
        if reward is not None:
            data[names.REWARD] = names.finite(reward)
            if data[names.REWARD] is None:
                raise ConfigError(f"a reward is a finite number, not {reward!r}")
        # Only the session knows its sequence. Feedback takes the range's upper half, one number a millisecond.
        half = names.MAX_SEQUENCE // 2
        session = names.checked_name("session_id", session_id)
        with self.lock:
            self._feedback = max(self._feedback + 1, int(now * 1000))
            number = half + self._feedback % half
        return self.reviews.emit(Event("feedback", self.tenant, self.agent, session, number, now, data))

    async def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything so far is acknowledged. Return False on time-out."""
        return all(await asyncio.gather(*(sender.flush(timeout_seconds) for sender in self._senders)))

    @property
    def sent(self) -> int:
        return self.emitter.sent + self.reviews.sent

    @property
    def dropped(self) -> int:
        """Events not accepted in time."""
        return self.emitter.dropped + self.reviews.dropped

    @property
    def left_out(self) -> int:
        """Patterns and items that did not fit into `FLEETLORE_REPLICA_MB`."""
        return self.replica.left_out

    @property
    def call_model(self) -> CallModel | None:
        return self.adapters.model.value

    @property
    def call_model_version(self) -> str | None:
        """sha256 of its weights."""
        return self.adapters.model.version

    @property
    def adapter_version(self) -> str | None:
        """Version of the LoRA that the agent's language model runs, or None."""
        return self._policy.version if self._policy is not None else None

    @property
    def adapters_refused(self) -> dict[str, int]:
        """By reason."""
        return dict(self.adapters.calls.refused) if self.adapters.calls is not None else {}

    def count_advice(self, advice: Advice, seconds: float) -> None:
        with _counting:
            _seconds.append(seconds)
            _counted["advice_total"] += 1
            _counted["advice_shown_total"] += len(advice.ids)
            _counted["advice_withheld_total"] += len(advice.withheld)


def metrics() -> dict[str, float]:
    """Return what the fleets of this process have done since it began, in the names and units of Prometheus.

    Returns:
        `fleets`, how many are entered; `events_sent_total`, `events_dropped_total`, of those that were left too;
        `advice_total` calls of `advise` and `brief`, `advice_shown_total` and `advice_withheld_total` lines;
        `advice_seconds_p50` and `advice_seconds_p99` of the last 4,096 calls; `replica_age_seconds`, since the broker
        last answered the longest waiting copy of the lore; `replica_loaded`, 1 if every copy holds all lore that
        existed when it began, otherwise 0; `records_unreadable`, skipped records of the lore.
    """
    with _counting:
        fleets, seconds, counted = list(_fleets), list(_seconds), Counter(_counted)
    p50, p99 = np.quantile(seconds, (0.5, 0.99)) if seconds else (0.0, 0.0)
    return {
        "fleets": len(fleets),
        "events_sent_total": counted["events_sent_total"] + sum(fleet.sent for fleet in fleets),
        "events_dropped_total": counted["events_dropped_total"] + sum(fleet.dropped for fleet in fleets),
        **{name: counted[name] for name in ("advice_total", "advice_shown_total", "advice_withheld_total")},
        "advice_seconds_p50": float(p50),
        "advice_seconds_p99": float(p99),
        "replica_age_seconds": max((fleet.replica.age_seconds for fleet in fleets), default=0.0),
        "replica_loaded": float(all(fleet.replica.loaded for fleet in fleets)),
        "records_unreadable": sum(fleet.replica.unreadable for fleet in fleets),
    }
