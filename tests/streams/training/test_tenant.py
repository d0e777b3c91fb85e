"""A tenant's trainer on a real broker: a canary runs on a share of the agents, and evidence or a person decides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest
from aiokafka import ConsumerRecord

from benchmarks.pretrain import world_judgments
from fleetlore.adapters.listing import read_adapters
from fleetlore.config import Settings
from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.risk.network import load_base
from fleetlore.testing.clock import FakeClock
from fleetlore.testing.sessions import call, judgment
from fleetlore.wire.adapter_manifest import ProceduralManifest, in_cohort
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Judgment, Label
from models.adapter.admission import Cadence
from models.adapter.learner import Learner
from models.adapter.lora_trainer import TrainerConfig
from models.calls.training import CallTraining
from models.promotion.canary import PATIENCE_SECONDS
from models.promotion.gate import GateConfig
from sinks.adapter_publisher import ADAPTER_TOPICS, AdapterPublisher
from sinks.metrics import Metrics
from sinks.signing_key import create_signing_key
from streams.embedded.broker import EmbeddedBroker
from streams.training.tenant import TenantTrainer

MakeTopics = Callable[..., Awaitable[None]]
PAIRS = 60
CANARY_SHARE = 0.5
EASY = GateConfig(
    minimum_steps=20,
    minimum_failures=3,
    balanced_accuracy_margin=1.0,
    recall_margin=1.0,
    false_promotions=1e9,
    auroc_margin=1.0,
)


class OnTrial(NamedTuple):
    """A trainer whose second version is on trial."""

    trainer: TenantTrainer
    learner: Learner
    publisher: AdapterPublisher[ProceduralManifest]
    settings: Settings
    clock: FakeClock
    stable: str
    canary: str

    def new(self) -> tuple[TenantTrainer, Learner]:
        """As a trainer that is started again would have it."""
        tenant = self.settings.tenants[0]
        learner = quick_learner(tenant)
        return TenantTrainer(tenant, learner, self.publisher, self.settings, Metrics("trainer"), self.clock), learner

    async def channels(self) -> dict[str, str]:
        """What each channel that is followed points to."""
        listing = await read_adapters(self.settings.broker, self.settings.tenants[0])
        return {pointer["channel"]: pointer["version"] for pointer in listing.pointers}

    def end_sessions(self, version: str, label: Label) -> None:
        """So many sessions that ran with a version ended, each of another agent whose turn it was."""
        step = call("grep", adapter=version)
        turn = [f"a{n}" for n in range(8 * PAIRS) if in_cohort(f"a{n}", CANARY_SHARE) == (version == self.canary)]
        ended = [
            judgment(step, label=label, session=f"{version[:8]}-{label}-{agent}", agent=agent) for agent in turn[:PAIRS]
        ]
        self.trainer.take(record(ended, offset=99))


def quick_learner(tenant: str) -> Learner:
    cadence = Cadence(smallest_update=8, updates_per_candidate=1, patience_seconds=0.2)
    return Learner(tenant, load_base(), shared_encoder(), TrainerConfig(steps=1), cadence, EASY)


def record(judgments: list[Judgment], offset: int) -> ConsumerRecord:
    value = orjson.dumps([orjson.loads(each.to_json()) for each in judgments])
    name = topic(judgments[0].trajectory.tenant, "judgments")
    return ConsumerRecord(name, 0, offset, 0, 0, None, value, None, 0, len(value), ())


@pytest.fixture
async def tried(broker: EmbeddedBroker, tenant: str, make_topics: MakeTopics, tmp_path: Path) -> AsyncIterator[OnTrial]:
    await make_topics(broker.address, tenant, *ADAPTER_TOPICS, "judgments", partitions=1)
    create_signing_key(tmp_path / "key")
    settings = Settings(
        broker=broker.address, tenants=(tenant,), signing_key=str(tmp_path / "key"), canary_share=CANARY_SHARE
    )
    clock, learner = FakeClock(), quick_learner(tenant)
    async with AdapterPublisher.from_settings(ProceduralManifest, settings, clock) as publisher:
        trainer = TenantTrainer(tenant, learner, publisher, settings, Metrics("trainer"), clock)
        judgments = list(world_judgments(0, 200, tenant=tenant))
        for offset in range(20):
            trainer.take(record(judgments[10 * offset : 10 * offset + 10], offset))
        while (known := await publisher.published(tenant)).canary is None:
            clock.advance(1.0)
            await trainer.learn()
        assert known.pointer is not None
        assert known.canary is not None
        yield OnTrial(trainer, learner, publisher, settings, clock, known.pointer.version, known.canary.version)


def running(learner: Learner) -> str:
    assert learner.running is not None
    return learner.running[1].version


async def test_a_version_under_which_sessions_end_better_is_promoted(tried: OnTrial) -> None:
    assert not await tried.trainer.end_trial()
    tried.end_sessions(tried.canary, "success")
    tried.end_sessions(tried.stable, "failure")
    assert await tried.trainer.end_trial()
    assert await tried.channels() == {"stable": tried.canary}
    assert running(tried.learner) == tried.canary


async def test_a_version_under_which_sessions_end_worse_is_taken_back(tried: OnTrial) -> None:
    tried.end_sessions(tried.canary, "failure")
    tried.end_sessions(tried.stable, "success")
    assert await tried.trainer.end_trial()
    assert await tried.channels() == {"stable": tried.stable}
    assert running(tried.learner) == tried.stable


async def test_a_trial_without_sessions_is_lost_when_its_time_is_up(tried: OnTrial) -> None:
    tried.clock.advance(PATIENCE_SECONDS - 60)
    assert not await tried.trainer.end_trial()
    tried.clock.advance(61)
    assert await tried.trainer.end_trial()
    assert await tried.channels() == {"stable": tried.stable}


async def test_nothing_is_committed_and_nothing_published_while_a_version_is_tried(tried: OnTrial) -> None:
    tried.clock.advance(60)
    assert not await tried.trainer.learn()
    assert await tried.channels() == {"stable": tried.stable, "canary": tried.canary}


async def test_what_a_person_decides_meanwhile_ends_the_trial(tried: OnTrial) -> None:
    await tried.publisher.rollback(tried.settings.tenants[0], tried.stable)
    tried.end_sessions(tried.canary, "success")
    tried.end_sessions(tried.stable, "failure")
    assert await tried.trainer.end_trial()
    assert await tried.channels() == {"stable": tried.stable}
    assert running(tried.learner) == tried.stable


async def test_a_persons_decision_counts_though_the_trial_is_won(
    tried: OnTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = tried.publisher.move

    async def overtaken(*arguments: object, **how: object) -> object:
        monkeypatch.setattr(tried.publisher, "move", move)
        await tried.publisher.rollback(tried.settings.tenants[0], tried.stable)
        return await move(*arguments, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(tried.publisher, "move", overtaken)
    tried.end_sessions(tried.canary, "success")
    tried.end_sessions(tried.stable, "failure")
    assert await tried.trainer.end_trial()
    assert await tried.channels() == {"stable": tried.stable}
    assert running(tried.learner) == tried.stable


async def test_a_trainer_that_starts_again_ends_a_trial_whose_sessions_nobody_counted(tried: OnTrial) -> None:
    trainer, learner = tried.new()
    await trainer.resume()
    assert await tried.channels() == {"stable": tried.stable}
    assert running(learner) == tried.stable


async def test_an_erasure_ends_a_trial_for_its_version_may_hold_what_is_erased(tried: OnTrial) -> None:
    await tried.trainer.forget()
    assert await tried.channels() == {"stable": tried.stable}
    tried.clock.advance(PATIENCE_SECONDS + 1)
    assert not await tried.trainer.end_trial()  # there is none: the next candidate need not wait for its end
    assert running(tried.learner) == tried.stable


async def test_nothing_is_learned_on_from_a_version_that_is_revoked_though_no_other_is_left(tried: OnTrial) -> None:
    (tenant,) = tried.settings.tenants
    await tried.publisher.revoke(tenant, tried.canary)
    tried.clock.advance(PATIENCE_SECONDS + 1)
    assert await tried.trainer.end_trial()
    assert await tried.publisher.revoke(tenant, tried.stable) is None
    judgments = list(world_judgments(0, 200, seed=1, tenant=tenant))
    for offset in range(20):
        tried.trainer.take(record(judgments[10 * offset : 10 * offset + 10], 100 + offset))
    while not (versions := (await tried.publisher.published(tenant)).versions):
        tried.clock.advance(1.0)
        await tried.trainer.learn()
    assert [manifest.parent for manifest in versions.values()] == [None]


async def test_a_version_says_where_it_adds_to_what_the_call_model_foresaw(
    broker: EmbeddedBroker, tenant: str, make_topics: MakeTopics, tmp_path: Path
) -> None:
    await make_topics(broker.address, tenant, *ADAPTER_TOPICS, "judgments", partitions=1)
    create_signing_key(tmp_path / "key")
    settings = Settings(broker=broker.address, tenants=(tenant,), signing_key=str(tmp_path / "key"))
    judgments = list(world_judgments(0, 200, tenant=tenant))
    training = CallTraining()
    for each in judgments:
        training.learn(each.trajectory)
    clock, learner = FakeClock(), quick_learner(tenant)
    async with AdapterPublisher.from_settings(ProceduralManifest, settings, clock) as publisher:
        foreseen = {tenant: training.version().foreseen}
        trainer = TenantTrainer(tenant, learner, publisher, settings, Metrics("trainer"), clock, foreseen=foreseen)
        for offset in range(20):
            trainer.take(record(judgments[10 * offset : 10 * offset + 10], offset))
        while learner.running is None or not learner.running[1].blends:
            clock.advance(1.0)
            await trainer.learn()
        found = (await publisher.published(tenant)).complete()
    assert found is not None and found[1].blends == learner.running[1].blends
    assert {each.tool for each in found[1].blends} <= set(training.version().tools)
