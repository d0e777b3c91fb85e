"""Put versions of one adapter of a tenant into service, as far as its channel is the trainer's to move."""

import contextlib
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Generic

from fleetlore.clock import Clock
from fleetlore.errors import ChannelMoved
from fleetlore.wire.adapter_manifest import Manifest, in_cohort
from fleetlore.wire.trajectory import Judgment
from models.policy.gate import CanaryTrial
from sinks.adapter_publisher import AdapterPublisher
from sinks.metrics import Metrics

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Publication(Generic[Manifest]):
    """Publishes what passed the gate, after a canary trial by `canary_share` of the agents (0..1), if any.

    Every method raises BrokerUnavailable if the broker stays away. `running`: weights and manifest of the version in
    service.
    """

    tenant: str
    publisher: AdapterPublisher[Manifest]
    metrics: Metrics
    clock: Clock
    canary_share: float = 0.0

    def __post_init__(self) -> None:
        self.running: tuple[bytes, Manifest] | None = None
        self.name = self.publisher.kind.name
        self._trial: tuple[CanaryTrial, bytes, Manifest] | None = None
        self._warned = False

    @property
    def on_trial(self) -> bool:
        return self._trial is not None

    async def resume(self) -> None:
        """Read which version is in service, and end a canary: the process that counted its sessions is gone."""
        self._trial = None
        published = await self.publisher.published(self.tenant)
        self.running = published.complete()
        if published.canary is not None and self.running is not None:
            with contextlib.suppress(ChannelMoved):
                await self.publisher.move(published, self.running[1].version, "the trial was interrupted")
            self.running = (await self.publisher.published(self.tenant)).complete()
        if self.running is not None:
            self.metrics.show_adapter(self.name, self.running[1].version)

    async def offer(self, weights: bytes, manifest: Manifest, principals: Collection[str]) -> None:
        """Publish a version, unless somebody else has moved the channel, pinned it or revoked the version.

        `principals` of its sessions: the trial needs two that try it and two that do not.
        """
        published = await self.publisher.published(self.tenant)
        pointed = published.complete()
        pinned = published.stable is not None and published.stable.record.pinned
        is_moved = pointed is not None and (self.running is None or pointed[1].version != self.running[1].version)
        if pinned or is_moved:
            log.info("tenant %s: a person or another trainer pointed %s elsewhere", self.tenant, self.name)
            self.running = pointed
            return
        version = manifest.version
        if published.is_revoked(version):
            return
        manifest = published.as_next(manifest)
        share = self.canary_share if self.running is not None else 0.0
        # A trial's decision must hold without any one principal.
        tries = sum(in_cohort(each, share, version) for each in principals)
        if share and min(tries, len(principals) - tries) < 2:
            if not self._warned:
                message = "tenant %s: %d of %d principals would try a version first: too few, it is published without"
                log.warning(message, self.tenant, tries, len(principals))
            self._warned, share = True, 0.0
        try:
            await self.publisher.publish(weights, manifest, canary_share=share, known=published)
        except ChannelMoved:
            await self.resume()
            return
        if share and self.running is not None:
            trial = CanaryTrial(version, self.running[1].version, share, self.clock.monotonic())
            self._trial = trial, weights, manifest
            log.info("tenant %s: %s runs on %.0f %% of agents", self.tenant, version[:12], 100 * share)
            return
        self._set_in_service(weights, manifest)

    def vote(self, judgment: Judgment) -> None:
        if self._trial is not None:
            self._trial[0].add(judgment, self.clock.monotonic())

    async def end_trial(self) -> None:
        if self._trial is None:
            return
        trial, weights, manifest = self._trial
        decision = trial.decide(self.clock.monotonic())
        if decision == "waiting":
            return
        self._trial = None
        log.info("tenant %s: the canary trial decided %s %s", self.tenant, decision, trial.counts)
        self.metrics.gate_decisions.labels(f"canary_{decision}").inc()
        published = await self.publisher.published(self.tenant)
        promoted = decision == "promote"
        reason = "promoted after its trial" if promoted else "the trial was lost"
        if published.canary is None or published.canary.record.version != trial.canary:
            promoted = False  # the channel was pointed elsewhere during the trial: that decision counts
        else:
            try:
                await self.publisher.move(published, trial.canary if promoted else trial.stable, reason)
            except ChannelMoved:
                promoted = False
        if promoted:
            self._set_in_service(weights, manifest)
        else:
            self.running = (await self.publisher.published(self.tenant)).complete()

    def _set_in_service(self, weights: bytes, manifest: Manifest) -> None:
        self.running = weights, manifest
        self.metrics.adapters_published.labels("ok").inc()
        self.metrics.show_adapter(self.name, manifest.version)
        log.info("tenant %s: %s %d (%s)", self.tenant, self.name, manifest.ordinal, manifest.version[:12])
