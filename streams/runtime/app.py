"""Run the stages on Faust: one agent a stage, whole batches, explicit commits."""

import asyncio
import logging
import tempfile
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import faust
from aiokafka.errors import KafkaError, KafkaTimeoutError
from faust.app.base import BootStrategy

from fleetlore.clock import SystemClock
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable, FleetloreError
from fleetlore.kafka.client import ConnectionRefused, backoff
from fleetlore.wire.topics import topic
from sinks.health_endpoint import Readiness
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from sinks.producer import BatchProducer
from sinks.topics import ensure_topics, refuse_grown, watch_topics
from streams.runtime.bad_records import Breaker
from streams.runtime.delivery import SHARE, Delivery, Lease, Ledger
from streams.runtime.pump import Pump
from streams.runtime.stale_records import mend_stale
from streams.stage.base import Stage, TopicPartition
from streams.stage.operators import Operators
from streams.stages.pipeline import language_model, pipeline
from streams.stages.s3_judgments import OpinionsStage

__all__ = ["FleetApp"]

log = logging.getLogger(__name__)

_COMMIT_SECONDS = 0.25
_IDLE_SECONDS = 0.25
_LAG_SECONDS = 1.0
# A write is retried after this share of the session timeout.
_WRITE_SHARE = 0.5
# Running batches may use this share of the rebalance timeout.
_REBALANCE_SHARE = 0.7
_OPEN_SECONDS = 60.0
# A worker is ready while these keep up. Others may wait for a language model.
_HINT_STAGES = frozenset({"sessions", "patterns"})


class _WithoutKafka(BootStrategy):  # type: ignore[misc]
    """Start no Faust consumer or producer: `Pump` reads and `BatchProducer` writes."""

    enable_kafka = False


class FleetApp(faust.App):  # type: ignore[misc]  # Faust has no types that mypy can follow here
    BootStrategy = _WithoutKafka

    def __init__(self, settings: Settings, metrics: Metrics, health: Readiness) -> None:
        super().__init__(
            settings.group,
            store="memory://",
            datadir=str(Path(tempfile.gettempdir()) / "fleetlore-faust"),
            topic_allow_declare=False,
            topic_disable_leader=True,
            web_enabled=False,
            worker_redirect_stdouts=False,
        )
        self._settings, self._metrics, self._health = settings, metrics, health
        self._ledger = Ledger()
        self._lease = Lease(SHARE * settings.session_timeout_seconds)
        # Shorter than the session, so writes begun before a loss of partitions land soon after.
        write_seconds = _WRITE_SHARE * settings.session_timeout_seconds
        self._store = MilvusStore.from_settings(
            settings, metrics=metrics, check=self._lease.check, write_seconds=write_seconds
        )
        self._batch_producer = BatchProducer(settings.cluster, check=self._lease.check, delivery_seconds=write_seconds)
        breaker = Breaker(settings.breaker_run_records)
        self._delivery = Delivery(
            self._store, self._batch_producer, metrics, SystemClock(), self._ledger, breaker=breaker, lease=self._lease,
            write_seconds=write_seconds, tenants=len(settings.tenants),
        )  # fmt: skip
        self._model = language_model(settings, metrics)
        self._operators = Operators()
        self._stages = self._made_stages()
        self._turns = {name: asyncio.Lock() for name in self._stages}
        self._pump = Pump(settings, self, self._lease)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._idle: set[str] = set()
        self._assigned: frozenset[TopicPartition] = frozenset()
        # During a rebalance no batch begins: records that an agent still holds are read again.
        self._open = False
        for stage in self._stages.values():
            self._add_agent(stage)
        self.task(self._or_end("the Kafka client", self._pump.run))
        self.task(self._or_end("the Kafka client", self._measure_lag))
        self.task(self._or_end("commit", self._commit_often))
        self.task(self._or_end("topics", partial(watch_topics, settings)))
        for work in (self._flush_often, self._follow_operators, self._mend_stale, health.keep_beating):
            self.task(work)

    def _made_stages(self) -> dict[str, Stage]:
        stages = pipeline(self._store, self._metrics, SystemClock(), self._settings, self._model, self._operators)
        if self._model is not None:
            stages += (OpinionsStage(self._model, self._operators.erased),)
        return {stage.name: stage for stage in stages}

    def _discard_state(self) -> None:
        self._delivery.forget()
        for stage in self._stages.values():
            stage.close()
        self._stages = self._made_stages()

    def _add_agent(self, stage: Stage) -> None:
        channel = self.channel(maxsize=1)
        names = [topic(tenant, stage.reads) for tenant in self._settings.tenants]
        feed = self._pump.feed(channel, names, stage.linger_seconds)

        async def run(batches: Any) -> None:
            async for batch in batches:
                async with self._turns[stage.name]:
                    if self._open and batch.generation == self._pump.generation:
                        await self._run(self._stages[stage.name], batch.records)
                feed.free.set()

        self.agent(channel, name=stage.name)(run)

    async def _run(self, stage: Stage, batch: list[Any]) -> None:
        # A task of its own can be cancelled without ending the agent.
        self._idle.discard(stage.name)
        self._running[stage.name] = asyncio.create_task(self._process(stage, batch))
        if stage.name in _HINT_STAGES:
            await self._health.watch(stage.name, self._running[stage.name])
        else:
            await asyncio.wait([self._running[stage.name]])

    async def _process(self, stage: Stage, batch: list[Any]) -> None:
        """No exception may reach Faust: it would go on with the *next* batch, whose commit would skip this one."""
        try:
            await self._delivery.run(stage, batch)
            if self._delivery.stopped:
                self._pump.pause(self._delivery.stopped)
        except Exception as error:
            if not self._open:
                log.warning("%s: batch left to the next worker: %s", stage.name, error)
                return
            await self._end(stage.name, error)

    async def _end(self, what: str, error: BaseException) -> None:
        self._open = False
        if isinstance(error, FleetloreError):
            log.critical("%s: %s", what, error)
        else:
            log.critical("%s failed", what, exc_info=error)
        self._health.fail(f"{what}: {error!r}")
        await self.crash(error)

    def _or_end(self, what: str, work: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Return the work of a task whose error ends the worker."""

        async def run() -> None:
            try:
                await work()
            except Exception as error:
                if not self.should_stop:
                    await self._end(what, error)

        return run

    async def _drain(self, budget_seconds: float) -> None:
        """Beyond the budget, running ones are cancelled without a commit."""
        self._open = False
        running = [task for task in self._running.values() if not task.done()]
        running += [
            asyncio.create_task(self._process(stage, []))
            for stage in self._stages.values()
            # After a lapse, the new owner reads the held records again.
            if self._lease.holds and stage.holds and not self._turns[stage.name].locked()
        ]
        if running:
            _, late = await asyncio.wait(running, timeout=budget_seconds)
            for task in late:
                task.cancel()
            if late:
                log.warning("%d batches did not end within %.0f s; left to the next worker", len(late), budget_seconds)
                await asyncio.wait(late)
        await self._commit()

    async def on_start(self) -> None:
        for prepare in (ensure_topics, refuse_grown):
            await _answered(partial(prepare, self._settings))
        # Read erasures before the first batch, which may hold erased sessions.
        await _answered(partial(self._operators.read, self._settings.cluster, self._settings.tenants))
        await self._batch_producer.start()
        await self._store.open_within(_OPEN_SECONDS, lambda error: self._health.unready("milvus", str(error)))
        self._health.ready("milvus")
        await self._pump.start()
        # Faust's own consumer would do this. Agents get no records before it.
        self.flow_control.resume()
        await super().on_start()

    async def on_stop(self) -> None:
        self._health.unready("partitions", "stopping")
        self._pump.fetching = False
        await self._drain(self._settings.drain_seconds)
        await super().on_stop()
        await self._pump.stop()
        self._discard_state()
        if self._model is not None:
            await self._model.close()
        await self._batch_producer.stop()
        await self._store.close()

    async def on_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._metrics.rebalances.inc()
        for name in {tp.topic for tp in assigned}:
            # Create the counter at 0: Prometheus misses the increase of a new series.
            self._metrics.expired_records.labels(name)
            self._metrics.truncated_records.labels(name)
        self._delivery.second_writes.begin()
        self._assigned = frozenset(assigned)
        self._open = not self.should_stop
        self._health.ready("partitions")

    async def on_revoked(self) -> None:
        self._health.unready("partitions", "rebalancing")
        self._assigned = frozenset()
        await self._drain(self._settings.session_timeout_seconds * _REBALANCE_SHARE)
        self._discard_state()
        metrics = self._metrics  # the next owners report these
        for family in (metrics.consumer_lag, metrics.uncommitted_records, metrics.tool_calls, metrics.tool_failures):
            family.clear()
        metrics.degraded_tools.clear()

    def on_expired(self, tp: TopicPartition, records: int) -> None:
        self._metrics.expired_records.labels(tp.topic).inc(records)
        message = (
            "%s[%d]: retention has deleted %d records that no worker had come to. Their events are lost; keep the "
            "topic for longer than an outage may last"
        )
        log.critical(message, *tp, records)

    async def _flush_often(self) -> None:
        while not self.should_stop:
            self._idle = set(self._stages)
            await asyncio.sleep(_IDLE_SECONDS)
            for name, stage in self._stages.items():
                if (stage.holds or self._delivery.second_writes.owes(name)) and name in self._idle:
                    async with self._turns[name]:
                        if self._open and stage is self._stages[name]:
                            await self._run(stage, [])

    async def _commit_often(self) -> None:
        while not self.should_stop:
            await self._commit()
            await asyncio.sleep(_COMMIT_SECONDS)

    async def _commit(self) -> None:
        offsets = self._ledger.take()
        committed = await self._pump.commit(offsets)
        if not offsets:
            return
        self._metrics.commits.labels("ok" if committed else "rebalanced").inc()
        if committed:
            self._ledger.settle(offsets)
            self._metrics.last_commit.set_to_current_time()
        else:
            # No later batch would allow these offsets again if no events come.
            self._ledger.put_back(offsets)

    async def on_truncated(self, lost: Mapping[TopicPartition, int]) -> None:
        for tp, records in lost.items():
            self._metrics.truncated_records.labels(tp.topic).inc(records)
            message = (
                "%s[%d]: the broker has lost %d records or more that it had acknowledged (a replica that was not in "
                "sync was elected, or the topic was made anew). What is there now is read from its beginning"
            )
            log.critical(message, *tp, records)
        await self._drain(self._settings.session_timeout_seconds * _REBALANCE_SHARE)
        await self._pump.read_anew(lost)

    async def _follow_operators(self) -> None:
        place = self._settings.cluster, self._settings.tenants, SystemClock(), self._settings.fetch_wait_ms
        await asyncio.gather(*(each.follow(*place) for each in self._operators.topics))

    async def _mend_stale(self) -> None:
        def owned(tp: TopicPartition) -> bool:
            return self._open and tp in self._assigned

        await mend_stale(self._settings, self._batch_producer, owned)

    async def _measure_lag(self) -> None:
        while not self.should_stop:
            self._metrics.paused_partitions.set(self._pump.paused())
            for tp, lag in (await self._pump.lags(self._ledger.positions())).items():
                self._metrics.consumer_lag.labels(tp.topic, tp.partition).set(lag)
            for tp, records in self._ledger.uncommitted().items():
                self._metrics.uncommitted_records.labels(tp.topic, tp.partition).set(records)
            await self.sleep(_LAG_SECONDS)


async def _answered(attempt: Callable[[], Awaitable[object]]) -> None:
    last = time.monotonic() + _OPEN_SECONDS
    for pause in backoff():
        try:
            await attempt()
            return
        except BrokerUnavailable as error:
            cause = error.__cause__
            passes = isinstance(cause, OSError | KafkaTimeoutError) or (
                isinstance(cause, KafkaError) and cause.retriable
            )
            if not passes or isinstance(cause, ConnectionRefused) or time.monotonic() > last:
                raise
            log.warning("%s; trying again in %.1f s", error, pause)
        await asyncio.sleep(pause)
