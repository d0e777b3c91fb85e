"""Run the role `trainer`: sessions and judgments in, signed adapter versions out. Run one per tenant.

The call model is learned from closed sessions (`streams.training.calls`), the LoRA from judgments.

It takes a bounded share of a core. If more sessions are judged than it can learn with that, it learns a sample in which
agents take turns (`streams.training.backlog`), and the rest counts as read.

Offsets are committed after a version is published, or after its candidate was dropped and its sessions stay in the log
for the replay buffer; never past a session that waits to be learned. So a killed trainer continues from the last
published version and learns again what no version holds yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError

from fleetlore.clock import Clock, SystemClock
from fleetlore.config import Settings
from fleetlore.errors import ModelUnavailable
from fleetlore.kafka.client import connected, heartbeat_seconds, make_consumer
from fleetlore.kafka.read import POLL_MS
from fleetlore.wire.adapter_manifest import CallsManifest, ProceduralManifest
from sinks.adapter_publisher import AdapterPublisher
from sinks.health_endpoint import Readiness
from sinks.metrics import Metrics
from streams.runtime.lifecycle import at_first_signal
from streams.stage.erased import Erased
from streams.training.backlog import BURST_SECONDS, CpuBudget
from streams.training.calls import train_calls
from streams.training.judgment_log import newest_before
from streams.training.refusals import count_refusals
from streams.training.tenant import TenantTrainer

if TYPE_CHECKING:
    from models.adapter.learner import Learner
    from models.calls.thresholds import CallsForeseen

log = logging.getLogger(__name__)

# Sessions of a tenant to read again at the start: a fifth of them is held out and fills that buffer of 400. Records
# would be no bound, because one holds up to a hundred sessions.
RECALLED_SESSIONS = 2_000
AUTOGROUP = Path("/proc/self/autogroup")
# A member that leaves its group explicitly frees its partitions at once.
LEAVE_SECONDS = 10.0
# The workers on the same cores go first. How much it takes is bounded by `trainer_cpu_share`: a process of niceness 19
# would get next to nothing where they are busy.
NICENESS = 5


async def run_trainer(settings: Settings, *, niceness: int = NICENESS) -> None:
    """Train until SIGTERM or SIGINT, then return; see `streams.runtime.lifecycle`.

    An update or a candidate that does not end in time is dropped, and the next trainer learns its sessions again. Its
    thread goes on, so end the process then.

    Without torch, or the base of the LoRA, only the call model is trained.

    Raises ConfigError without a signing key, BrokerUnavailable if the broker stays away while a version of the LoRA is
    published.
    """
    stop = asyncio.Event()
    at_first_signal(asyncio.get_running_loop(), stop.set, settings.drain_seconds)
    metrics, health = Metrics("trainer"), Readiness("broker")
    endpoint = metrics.serve(settings.metrics_port, settings.metrics_host, health)
    try:
        async with (
            AdapterPublisher.from_settings(ProceduralManifest, settings) as publisher,
            AdapterPublisher.from_settings(CallsManifest, settings) as calls_publisher,
        ):
            erased = Erased()
            await erased.read(settings.cluster, settings.tenants)
            # Settings are right and the broker answers: what is wrong of them is said at once. Importing torch and peft
            # takes seconds of CPU already, so neither is imported before this line.
            os.nice(niceness)
            with contextlib.suppress(OSError):
                # If Linux groups processes by session, a nice value counts within the session only, and each role is
                # one.
                AUTOGROUP.write_text(str(niceness))
            foreseen: CallsForeseen = {}
            work = [
                erased.follow(settings.cluster, settings.tenants, SystemClock(), settings.fetch_wait_ms),
                count_refusals(settings, settings.tenants, metrics),
                train_calls(settings, calls_publisher, metrics, SystemClock(), erased=erased, foreseen=foreseen),
            ]
            beside = [asyncio.create_task(each) for each in work]
            stopping = asyncio.create_task(stop.wait())

            async def train() -> None:
                # On a thread: neither the call model nor SIGTERM need wait for torch, which takes seconds to import.
                making = asyncio.create_task(asyncio.to_thread(_learners, settings))
                await asyncio.wait([making, stopping], return_when=asyncio.FIRST_COMPLETED)
                if not making.done():
                    return
                try:
                    learners = making.result()
                except ModelUnavailable as error:
                    log.warning("only the call model is trained: %s", error)
                    health.ready("broker")
                    beside.append(asyncio.create_task(health.keep_beating()))
                    await stop.wait()
                else:
                    role = TrainerRole(settings, learners, publisher, metrics, health, erased=erased, foreseen=foreseen)
                    await role.run(stop)

            running = asyncio.create_task(train())
            await asyncio.wait([running, stopping, *beside], return_when=asyncio.FIRST_COMPLETED)
            health.unready("broker", "stopping")
            for each in beside:
                if each.done():
                    each.result()  # they end by errors only
            try:
                await asyncio.wait_for(running, settings.drain_seconds)
            except TimeoutError:
                log.warning("an update or a candidate did not end within %.0f s", settings.drain_seconds)
            stopping.cancel()
            for each in beside:
                each.cancel()
    finally:
        endpoint.close()


def _learners(settings: Settings) -> dict[str, Learner]:
    """Make the learner of each tenant's LoRA. Raises ModelUnavailable without torch, peft or the base."""
    from fleetlore.retrieval.encoder import shared_encoder
    from fleetlore.risk.network import load_base

    base, encoder = load_base(settings.base), shared_encoder()
    try:
        import torch

        from models.adapter.learner import Learner
    except ImportError as error:
        raise ModelUnavailable(f"the LoRA needs {error.name}") from error
    torch.set_num_threads(1)  # more threads would spin while other processes need the cores
    return {tenant: Learner(tenant, base, encoder) for tenant in settings.tenants}


class TrainerRole:
    """Passes judgments to the trainers of the tenants, and commits their offsets."""

    def __init__(
        self,
        settings: Settings,
        learners: dict[str, Learner],
        publisher: AdapterPublisher[ProceduralManifest],
        metrics: Metrics,
        health: Readiness,
        clock: Clock | None = None,
        erased: Erased | None = None,
        foreseen: CallsForeseen | None = None,
        recalled_sessions: int = RECALLED_SESSIONS,
    ) -> None:
        self._recalled_sessions = recalled_sessions
        self._erased = erased or Erased()
        self._erased_seen = self._erased.count
        self._settings = settings
        self._metrics = metrics
        self._health = health
        self._clock = clock or SystemClock()
        trainers = (
            TenantTrainer(tenant, learner, publisher, settings, metrics, self._clock, self._erased, foreseen)
            for tenant, learner in learners.items()
        )
        self._trainers = {trainer.name: trainer for trainer in trainers}
        self._budget = CpuBudget(settings.trainer_cpu_share, BURST_SECONDS)

    async def run(self, stop: asyncio.Event) -> None:
        """Read, learn and publish until `stop` is set."""
        consumer = make_consumer(
            self._settings.cluster,
            *self._trainers,
            group=f"{self._settings.group}.trainer",
            fetch_max_wait_ms=self._settings.fetch_wait_ms,
            session_timeout_ms=int(self._settings.session_timeout_seconds * 1000),
            heartbeat_interval_ms=int(heartbeat_seconds(self._settings.session_timeout_seconds) * 1000),
        )
        async with connected(consumer, LEAVE_SECONDS):
            for trainer in self._trainers.values():
                await trainer.resume()
            while not consumer.assignment() and not stop.is_set():
                await asyncio.sleep(0.05)
            await self._recall(consumer)
            self._health.ready("broker")
            while not stop.is_set():
                self._health.beat()
                if self._erased_seen != self._erased.count:
                    await self._begin_again(consumer)
                for partition, records in (await consumer.getmany(timeout_ms=POLL_MS)).items():
                    for record in records:
                        self._trainers[partition.topic].take(record)
                for trainer in self._trainers.values():
                    affordable = self._budget.affords(self._clock.monotonic(), time.process_time())
                    learned = affordable and await trainer.learn()
                    if await trainer.end_trial() or learned:
                        await self._commit(consumer, trainer)

    async def _begin_again(self, consumer: AIOKafkaConsumer) -> None:
        """Learn without what was erased: from the versions in service and the committed offsets, or the beginning."""
        self._erased_seen = self._erased.count
        for trainer in self._trainers.values():
            await trainer.forget()
        for partition in consumer.assignment():
            committed = await consumer.committed(partition)
            if committed is None:
                await consumer.seek_to_beginning(partition)
            else:
                consumer.seek(partition, committed)
        await self._recall(consumer)

    async def _recall(self, consumer: AIOKafkaConsumer) -> None:
        """Fill the buffers again with the newest sessions before the committed offsets, as many of each partition."""
        known = {partition: await consumer.committed(partition) for partition in consumer.assignment()}
        committed = {partition: offset for partition, offset in known.items() if offset}
        partitions = Counter(partition.topic for partition in committed)
        for name, count in partitions.items():
            of_topic = {partition: offset for partition, offset in committed.items() if partition.topic == name}
            sessions = await newest_before(self._settings.cluster, of_topic, max(1, self._recalled_sessions // count))
            # On a thread, so that the consumer's heartbeats go on: a session takes a millisecond.
            await asyncio.to_thread(self._trainers[name].recall, sessions)

    async def _commit(self, consumer: AIOKafkaConsumer, trainer: TenantTrainer) -> None:
        mine = {partition: offset for partition, offset in trainer.done().items() if partition in consumer.assignment()}
        if not mine:
            return
        try:
            await consumer.commit(mine)
        except CommitFailedError:  # the partitions moved: their new owner reads from the old offsets
            self._metrics.commits("failed").inc()
        else:
            self._metrics.commits("ok").inc()
            self._metrics.last_commit().set(self._clock.now())
