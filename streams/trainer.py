"""The role `trainer`: judgments in, signed adapter versions out. Run one per tenant.

It takes a bounded share of a core. Where more sessions are judged than it can learn with that, it learns a sample in which
agents take turns (`streams.backlog`), and the rest counts as read.

Offsets are committed only after a version is published, or after its candidate was dropped and its sessions stay in the
log for the replay buffer; never past a session that waits to be learned. So a trainer that is killed continues from the
last published version and learns again what no version holds yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError

from fleetlore.clock import Clock, SystemClock
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable, ChannelMoved, InvalidEvent
from fleetlore.manifest import ADAPTER, DataRange, Place
from fleetlore.offsets import end_offsets, observer
from fleetlore.topics import tenant_of, topic
from fleetlore.trajectory import Judgment
from sinks.adapters import AdapterPublisher
from sinks.endpoint import Health
from sinks.metrics import Metrics
from streams.backlog import Backlog, Budget, Waiting
from streams.decode import split
from streams.lifecycle import at_first_signal
from streams.refusals import count_refusals

if TYPE_CHECKING:
    from fleetlore.inbox import AdapterInbox
    from fleetlore.manifest import AdapterManifest
    from models.canary import CanaryTrial
    from models.learner import Cadence, Candidate, Learner
    from models.trainer import TrainerConfig

log = logging.getLogger(__name__)

POLL_MS = 200
# Of a tenant: a fifth of them is held out, and fills that buffer of 400. Records were no bound, for one holds up to a hundred.
RECALLED_SESSIONS = 2_000
# Sessions offered to the learner ahead of its updates; the others wait where they cost nothing.
OFFERED_UPDATES = 2
MOST_WAITING = 1_024
BURST_SECONDS = 5.0
PUBLISH_ATTEMPTS = 6
AUTOGROUP = Path("/proc/self/autogroup")
NICENESS = 19  # learning never takes the time of what is waited for


async def run_trainer(
    settings: Settings, *, cadence: Cadence | None = None, config: TrainerConfig | None = None, niceness: int = NICENESS
) -> None:
    """Train until SIGTERM or SIGINT, then return; see `streams.lifecycle`. An update or a candidate that does not end in time
    is given up, and its sessions are learned again by the next trainer. It goes on in its thread: end the process then.

    Raises ConfigError without a signing key, ModelUnavailable without the base, BrokerUnavailable when the broker stays
    away while a version is published.
    """
    # Learning can wait; the workers on the same cores cannot. That begins with importing torch and peft, which takes
    # seconds of CPU, so neither is imported before this line.
    os.nice(niceness)
    with contextlib.suppress(OSError):
        # Where Linux groups processes by session, a nice value counts within the session only, and each role is one.
        AUTOGROUP.write_text(str(niceness))
    stop = asyncio.Event()
    at_first_signal(asyncio.get_running_loop(), stop.set, settings.drain_seconds)
    import torch

    from fleetlore.encoder import shared_encoder
    from fleetlore.network import load_base
    from models.learner import Learner
    from models.private_update import PrivacyConfig

    torch.set_num_threads(1)  # more of them would spin while others need the cores
    metrics, health = Metrics("trainer"), Health("broker")
    base, encoder = load_base(settings.base), shared_encoder()
    privacy = None
    if settings.privacy_noise > 0:
        privacy = PrivacyConfig(settings.privacy_noise, settings.privacy_clip_norm, settings.privacy_delta)
    learners = {tenant: Learner(tenant, base, encoder, config, cadence, privacy=privacy) for tenant in settings.tenants}
    endpoint = metrics.serve(settings.metrics_port, settings.metrics_host, health)
    try:
        async with AdapterPublisher.from_settings(settings) as publisher:
            role = TrainerRole(settings, learners, publisher, metrics, health)
            counting = asyncio.create_task(count_refusals(settings, learners, metrics), name="fleetlore-refusals")
            running, stopping = asyncio.create_task(role.run(stop)), asyncio.create_task(stop.wait())
            await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
            health.unready("broker", "stopping")
            try:
                await asyncio.wait_for(running, settings.drain_seconds)
            except TimeoutError:
                log.warning("what was being learned did not end within %.0f s", settings.drain_seconds)
            for each in (stopping, counting):
                each.cancel()
    finally:
        endpoint.close()


class TrainerRole:
    """Moves judgments into the learners and their adapters out to the fleet."""

    def __init__(
        self,
        settings: Settings,
        learners: dict[str, Learner],
        publisher: AdapterPublisher,
        metrics: Metrics,
        health: Health,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._learners = learners
        self._publisher = publisher
        self._metrics = metrics
        self._health = health
        self._clock = clock or SystemClock()
        self._backlogs = {tenant: Backlog(MOST_WAITING) for tenant in learners}
        self._budget = Budget(settings.trainer_cpu_share, BURST_SECONDS)
        self._ordinals = dict.fromkeys(learners, 0)
        self._offered_from: dict[TopicPartition, int] = {}
        self._read_to: dict[TopicPartition, int] = {}
        self._waiting: dict[tuple[str, str], Place] = {}
        self._trials: dict[str, tuple[CanaryTrial, bytes, AdapterManifest]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Read, learn and publish until `stop` is set."""
        consumer = AIOKafkaConsumer(
            *(topic(tenant, "judgments") for tenant in self._learners),
            bootstrap_servers=self._settings.broker,
            group_id=f"{self._settings.group}.trainer",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=self._settings.fetch_wait_ms,
            session_timeout_ms=int(self._settings.session_timeout_seconds * 1000),
            heartbeat_interval_ms=int(min(3.0, self._settings.session_timeout_seconds / 6) * 1000),
        )
        await consumer.start()
        try:
            for tenant in self._learners:
                await self._resume(tenant)
            while not consumer.assignment() and not stop.is_set():
                await asyncio.sleep(0.05)
            await self._recall(consumer)
            self._health.ready("broker")
            while not stop.is_set():
                self._health.beat()
                for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                    self._take(records)
                for tenant in self._learners:
                    if self._budget.affords(self._clock.monotonic(), time.process_time()):
                        self._offer(tenant)
                        await self._learn(tenant, consumer)
                    if tenant in self._trials:
                        await self._look_at_trial(tenant, consumer)
        finally:
            await consumer.stop()

    async def _resume(self, tenant: str) -> None:
        """Continue from what the channel points to."""
        published = await self._publisher.published(tenant)
        self._ordinals[tenant] = max((m.ordinal for m in published.versions.values()), default=0)
        self._learners[tenant].learned(published.versions.values())
        running = published.complete()
        if published.canary is not None and running is not None:
            # Who counted its sessions is gone, and a canary that nobody watches must not go on.
            with contextlib.suppress(ChannelMoved):
                await self._publisher.move(published, running[1].version, "the trial was interrupted")
            running = (await self._publisher.published(tenant)).complete()
        if running is not None:
            self._learners[tenant].resume(*running)
            self._metrics.show_adapter(ADAPTER, running[1].version)
            log.info("tenant %s continues from adapter %d (%s)", tenant, running[1].ordinal, running[1].version[:12])

    async def _recall(self, consumer: AIOKafkaConsumer) -> None:
        """Fill the buffers again with the newest sessions before the committed offsets, as many of each partition."""
        known = {partition: await consumer.committed(partition) for partition in consumer.assignment()}
        committed = {partition: offset for partition, offset in known.items() if offset}
        if not committed:
            return
        async with observer(self._settings.broker) as reader:
            ends = await end_offsets(reader, committed)
            # A log that was made anew is shorter than what was committed of the old one.
            until = {partition: min(committed[partition], end) for partition, end in ends.items()}
            partitions = Counter(partition.topic for partition in until)
            newest: dict[TopicPartition, deque[tuple[Judgment, Place]]] = {}
            for partition, begin in (await reader.beginning_offsets(list(until))).items():
                share = max(1, RECALLED_SESSIONS // partitions[partition.topic])
                newest[partition] = deque(maxlen=share)
                # A record holds at least one session.
                reader.seek(partition, max(begin, until[partition] - share))
            while unread := [p for p, end in until.items() if await reader.position(p) < end]:
                for partition, records in (await reader.getmany(*unread, timeout_ms=POLL_MS)).items():
                    for record in records:
                        if record.offset < until[partition]:
                            place = partial(Place, record.partition, record.offset)
                            newest[partition] += [
                                (judgment, place(number)) for number, judgment in judgments_of(record)
                            ]
        # On a thread, so that the consumer's heartbeats go on: a session takes a millisecond.
        await asyncio.to_thread(self._put_back, newest)

    def _put_back(self, newest: dict[TopicPartition, deque[tuple[Judgment, Place]]]) -> None:
        for partition, sessions in sorted(newest.items()):
            for judgment, place in sessions:
                self._learners[tenant_of(partition.topic)].recall(judgment, place)
        for learner in self._learners.values():
            learner.recalled()

    def _take(self, records: Iterable[ConsumerRecord]) -> None:
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            tenant = tenant_of(record.topic)
            self._metrics.received_records(record.topic).inc()
            self._offered_from.setdefault(partition, record.offset)
            for number, judgment in judgments_of(record):
                self._metrics.trainer_sessions().inc()
                place = Place(record.partition, record.offset, number)
                if tenant in self._trials:
                    self._trials[tenant][0].add(judgment)
                if not self._backlogs[tenant].add(Waiting(judgment, place)):
                    self._metrics.trainer_shed().inc()
            self._read_to[partition] = record.offset + 1

    def _offer(self, tenant: str) -> None:
        learner, backlog = self._learners[tenant], self._backlogs[tenant]
        while backlog and len(learner.waiting) < OFFERED_UPDATES * learner.config.new_sessions:
            judgment, place = backlog.take()
            if learner.offer(judgment, self._clock.monotonic(), place):
                self._waiting[tenant, judgment.trajectory.id] = place

    async def _learn(self, tenant: str, consumer: AIOKafkaConsumer) -> None:
        learner = self._learners[tenant]
        if learner.update_due(self._clock.monotonic()):
            began = self._clock.monotonic()
            # On a thread, so that the consumer's heartbeats go on.
            losses = await asyncio.to_thread(learner.update, began)
            if losses is not None:
                self._metrics.trainer_updates().inc(losses.steps)
                self._metrics.trainer_step_duration().observe((self._clock.monotonic() - began) / losses.steps)
            log.info("tenant %s: %s", tenant, losses or "nobody is believed who waited to be learned from")
        if tenant not in self._trials and learner.candidate_due(self._clock.monotonic()):
            candidate = await asyncio.to_thread(learner.candidate)
            self._metrics.gate_decisions(candidate.report.reason).inc()
            log.info("tenant %s: the gate says %s %s", tenant, candidate.report.reason, candidate.report.figures)
            if candidate.report.passed:
                await self._publish(tenant, candidate)
            if (candidate.report.passed or candidate.dropped) and tenant not in self._trials:
                await self._commit(tenant, consumer)

    async def _publish(self, tenant: str, candidate: Candidate) -> None:
        learner = self._learners[tenant]
        published = await self._publisher.published(tenant)
        running = learner.running[1].version if learner.running else None
        pointed = published.complete()
        pinned = published.pointer is not None and published.pointer.pinned
        if pointed is not None and (pinned or pointed[1].version != running):
            self._follow(tenant, published)
            return
        self._ordinals[tenant] = max((self._ordinals[tenant], *(m.ordinal for m in published.versions.values()))) + 1
        manifest = learner.manifest(candidate, self._ordinals[tenant], self._data(tenant), self._clock.now())
        share = self._settings.canary_share if running is not None else 0.0
        for attempt in range(PUBLISH_ATTEMPTS):
            try:
                await self._publisher.publish(candidate.weights, manifest, canary_share=share, known=published)
                break
            except ChannelMoved:
                self._follow(tenant, await self._publisher.published(tenant))
                return
            except BrokerUnavailable:
                self._metrics.adapters_published("broker_unavailable").inc()
                if attempt == PUBLISH_ATTEMPTS - 1:
                    raise
                await asyncio.sleep(2**attempt / 4)
        if share and running is not None:
            from models.canary import CanaryTrial

            trial = CanaryTrial(manifest.version, running, self._clock.monotonic())
            self._trials[tenant] = trial, candidate.weights, manifest
            log.info("tenant %s: %s is tried on %.0f %% of the agents", tenant, manifest.version[:12], 100 * share)
            return
        self._in_service(tenant, candidate.weights, manifest)

    async def _look_at_trial(self, tenant: str, consumer: AIOKafkaConsumer) -> None:
        """End the trial of a canary when its sessions, or the time, have decided."""
        trial, weights, manifest = self._trials[tenant]
        decision = trial.decide(self._clock.monotonic())
        if decision == "waiting":
            return
        del self._trials[tenant]
        log.info("tenant %s: the trial says %s %s", tenant, decision, trial.counts)
        self._metrics.gate_decisions(f"canary_{decision}").inc()
        published = await self._publisher.published(tenant)
        promoted = decision == "promote"
        version = trial.canary if promoted else trial.stable
        reason = "promoted after its trial" if promoted else "the trial was lost"
        try:
            if published.canary is None or published.canary.version != trial.canary:
                raise ChannelMoved(
                    "somebody pointed the channel elsewhere while it was tried: that is the decision then"
                )
            await self._publisher.move(published, version, reason)
        except ChannelMoved:
            promoted, published = False, await self._publisher.published(tenant)
        if promoted:
            self._in_service(tenant, weights, manifest)
        else:
            self._follow(tenant, published)
        await self._commit(tenant, consumer)

    def _follow(self, tenant: str, published: AdapterInbox) -> None:
        """Go on from what the channel points to: a child of a version that was withdrawn must not undo that."""
        pointed = published.complete()
        if pointed is not None:
            log.warning(
                "tenant %s: learning goes on from %s, the candidate is dropped", tenant, pointed[1].version[:12]
            )
            self._learners[tenant].resume(*pointed)

    def _in_service(self, tenant: str, weights: bytes, manifest: AdapterManifest) -> None:
        self._learners[tenant].resume(weights, manifest)
        self._offered_from = {p: o for p, o in self._offered_from.items() if tenant_of(p.topic) != tenant}
        self._metrics.adapters_published("ok").inc()
        self._metrics.show_adapter(ADAPTER, manifest.version)
        log.info("tenant %s: adapter %d (%s) is published", tenant, manifest.ordinal, manifest.version[:12])

    def _data(self, tenant: str) -> tuple[DataRange, ...]:
        starts = sorted(item for item in self._offered_from.items() if tenant_of(item[0].topic) == tenant)
        return tuple(DataRange(p.topic, p.partition, start, self._read_to[p]) for p, start in starts)

    async def _commit(self, tenant: str, consumer: AIOKafkaConsumer) -> None:
        """Commit what was read, up to the first session of each partition that still waits."""
        waiting = {(tenant, session) for session in self._learners[tenant].waiting}
        self._waiting = {key: place for key, place in self._waiting.items() if key[0] != tenant or key in waiting}
        offsets = {p: offset for p, offset in self._read_to.items() if tenant_of(p.topic) == tenant}
        own = (place for (whose, _), place in self._waiting.items() if whose == tenant)
        for place in (*own, *self._backlogs[tenant].places()):
            partition = TopicPartition(topic(tenant, "judgments"), place.partition)
            if partition in offsets:
                offsets[partition] = min(offsets[partition], place.offset)
        mine = {p: offset for p, offset in offsets.items() if p in consumer.assignment()}
        if not mine:
            return
        try:
            await consumer.commit(mine)
        except CommitFailedError:  # the partitions moved: their new owner reads from the old offsets
            self._metrics.commits("failed").inc()
        else:
            self._metrics.commits("ok").inc()
            self._metrics.last_commit().set(self._clock.now())


def judgments_of(record: ConsumerRecord) -> list[tuple[int, Judgment]]:
    """The judgments of a record, each with its place in it.

    What is none is left out: the stage before made it, and a trainer must not stop for it.
    """
    try:
        parts = split(record.value or b"")
    except InvalidEvent as error:
        log.warning("%s in %s[%d]@%d", error, record.topic, record.partition, record.offset)
        return []
    judgments = []
    for number, part in enumerate(parts):
        try:
            judgments.append((number, Judgment.from_json(part)))
        except ValueError as error:
            log.warning("no judgment in %s[%d]@%d: %s", record.topic, record.partition, record.offset, error)
    return judgments
