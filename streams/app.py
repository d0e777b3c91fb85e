"""The Faust app: one agent a stage, input as raw bytes, whole batches, explicit commits."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path
from typing import Any

import faust

from fleetlore.clock import Clock, SystemClock
from fleetlore.config import Settings
from fleetlore.encoder import shared_encoder
from fleetlore.errors import FleetloreError, StoreUnavailable
from fleetlore.topics import topic
from models.judge import JudgeChain
from sinks.endpoint import Health
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from sinks.outbox import Outbox
from sinks.topics import ensure_topics
from streams import faust_seam
from streams.candidates import CandidatesStage
from streams.delivery import Delivery, Ledger
from streams.items import ItemsStage
from streams.judgments import JudgmentsStage
from streams.patterns import PatternsStage
from streams.sessions import SessionsStage
from streams.stage import Stage
from streams.store import Store

log = logging.getLogger(__name__)

BATCH_RECORDS = 256
LINGER_SECONDS = 0.01
COMMIT_SECONDS = 0.1
LAG_SECONDS = 1.0
DRAIN_SECONDS = 20.0
OPEN_SECONDS = 60.0
OPEN_PAUSE_SECONDS = 0.2
MAX_FETCH_BYTES = 4 * 1024 * 1024


def pipeline(store: Store, metrics: Metrics, clock: Clock, silent_seconds: float) -> tuple[Stage, ...]:
    """All stages, in the order in which an event passes through them."""
    return (
        SessionsStage(clock, metrics, silent_seconds),
        PatternsStage(store),
        JudgmentsStage(store, JudgeChain(), metrics),
        CandidatesStage(),
        ItemsStage(store, metrics),
    )


class FleetApp(faust.App):  # type: ignore[misc]  # Faust has no types that mypy can follow here
    """The pipeline as a Faust app; run it with `faust.Worker`."""

    def __init__(self, settings: Settings, metrics: Metrics, health: Health) -> None:
        super().__init__(
            settings.group,
            broker=[f"kafka://{host}" for host in settings.broker.split(",")],
            broker_session_timeout=settings.session_timeout_seconds,
            broker_heartbeat_interval=min(3.0, settings.session_timeout_seconds / 6),
            broker_rebalance_timeout=settings.session_timeout_seconds,
            consumer_auto_offset_reset="earliest",
            consumer_max_fetch_size=MAX_FETCH_BYTES,
            # Acknowledgements are off, so there is nothing to wait for; waiting would only hang a stop.
            stream_wait_empty=False,
            stream_buffer_maxsize=1024,
            store="memory://",
            datadir=str(Path(tempfile.gettempdir()) / "fleetlore-faust"),
            topic_allow_declare=False,
            topic_disable_leader=True,
            web_enabled=False,
            worker_redirect_stdouts=False,
        )
        self._settings = settings
        self._metrics = metrics
        self._health = health
        self._ledger = Ledger()
        clock = SystemClock()
        self._store = MilvusStore(settings.milvus, settings.milvus_token, shared_encoder(), metrics)
        self._outbox = Outbox(settings.broker)
        self._delivery = Delivery(self._store, self._outbox, metrics, clock, self._ledger)
        self._stages = pipeline(self._store, metrics, clock, settings.silent_seconds)
        self._busy = {stage.name: asyncio.Lock() for stage in self._stages}
        for stage in self._stages:
            self._add_agent(stage)
        self.on_partitions_revoked.connect(self._on_revoked)
        self.on_partitions_assigned.connect(self._on_assigned)
        self.task(self._commit_often)
        self.task(self._measure_lag)
        self.task(health.keep_beating)

    def _new_transport(self) -> Any:
        return faust_seam.transport(self, self._settings.fetch_wait_ms)

    def _add_agent(self, stage: Stage) -> None:
        names = [topic(tenant, stage.reads) for tenant in self._settings.tenants]
        source = self.topic(
            *names, value_type=bytes, key_type=bytes, value_serializer="raw", key_serializer="raw", acks=False
        )

        async def run(stream: Any) -> None:
            async for events in faust_seam.batches(stream, BATCH_RECORDS, LINGER_SECONDS):
                async with self._busy[stage.name]:
                    if self.should_stop:
                        return
                    batch = faust_seam.current(self, events)
                    if batch:
                        await self._process(stage, batch)

        self.agent(source, name=stage.name)(run)

    async def _process(self, stage: Stage, batch: list[Any]) -> None:
        """Run one batch. What it cannot survive ends the worker without a commit.

        No exception may leave the agent: Faust would start it again with the *next* batch, whose commit would skip this one.
        """
        try:
            await self._delivery.run(stage, batch)
        except Exception as error:
            if isinstance(error, FleetloreError):
                log.critical("%s: %s", stage.name, error)
            else:
                log.critical("%s failed", stage.name, exc_info=error)
            self._health.fail(f"{stage.name}: {error!r}")
            await self.crash(error)
            await asyncio.Event().wait()

    async def on_start(self) -> None:
        await ensure_topics(self._settings)
        await self._outbox.start()
        await self._open_store()
        await super().on_start()

    async def _open_store(self) -> None:
        """Wait for Milvus: it may still be starting, or another process be creating the collections."""
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                while True:
                    try:
                        await self._store.open()
                        return
                    except StoreUnavailable as error:
                        self._health.unready("milvus", str(error))
                        await asyncio.sleep(OPEN_PAUSE_SECONDS)
        except TimeoutError:
            raise StoreUnavailable(
                f"Milvus at {self._settings.milvus} is not there after {OPEN_SECONDS:.0f} s"
            ) from None
        finally:
            self._health.ready("milvus")

    async def on_stop(self) -> None:
        """Finish the batches under way, commit them, and only then let go of the partitions."""
        self._health.unready("partitions", "stopping")
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                for lock in self._busy.values():
                    await lock.acquire()
        except TimeoutError:
            log.warning("a batch did not end within %.0f s; it will be done again", DRAIN_SECONDS)
        await self._commit()
        await super().on_stop()
        await self._outbox.stop()
        await self._store.close()

    async def _on_assigned(self, app: faust.App, assigned: set[Any], **_: Any) -> None:
        self._metrics.rebalances().inc()
        self._health.ready("partitions")

    async def _on_revoked(self, app: faust.App, revoked: set[Any], **_: Any) -> None:
        self._health.unready("partitions", "being handed out")
        # What was done under the old assignment need not be done again by the new owner.
        await self._commit()
        self._ledger.forget()
        for stage in self._stages:
            stage.forget()

    async def _commit_often(self) -> None:
        while not self.should_stop:
            await self._commit()
            await self.sleep(COMMIT_SECONDS)

    async def _commit(self) -> None:
        offsets = self._ledger.take()
        if not offsets:
            return
        committed = await faust_seam.commit(self, offsets)
        self._metrics.commits("ok" if committed else "rebalanced").inc()
        if committed:
            self._ledger.settle(offsets)
            self._metrics.last_commit().set_to_current_time()

    async def _measure_lag(self) -> None:
        while not self.should_stop:
            for tp, position in self._ledger.positions().items():
                end = self.consumer.highwater(tp)
                if end is not None:
                    self._metrics.consumer_lag(tp.topic, tp.partition).set(max(0, end - position))
            await self.sleep(LAG_SECONDS)
