"""From judged sessions on the log to a policy adapter in service, on a real broker."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tiny_model import save_tiny_model
from fleetlore.adapters.listing import read_adapters
from fleetlore.config import Settings
from fleetlore.errors import ConfigError, ModelUnavailable
from fleetlore.lora.adapter import unpack
from fleetlore.testing import FakeClock
from fleetlore.wire.adapter_manifest import LANGUAGE_MODEL, LanguageModelManifest, in_cohort
from fleetlore.wire.stats import stable_hash
from fleetlore.wire.trajectory import Judgment
from models.policy.gate import VOTE_SECONDS
from sinks.adapter_publisher import AdapterPublisher
from sinks.metrics import Metrics
from streams.stage.operators import Erased
from streams.training.policy import PolicyTrainer
from streams.training.publication import Publication
from streams.training.trainer import run_trainer
from streams.training.window import take
from tests.build import call, judgment
from tests.models.policy.made import fleet, session
from tests.streams.training.conftest import record

COUNT = 60
Publisher = AdapterPublisher[LanguageModelManifest]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("base"))


@pytest.fixture
def base(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that is learned fast."""
    from models.policy import learn

    fast = learn.Training(updates=40, learning_rate=5e-3)
    monkeypatch.setattr(learn, "Training", lambda: fast)
    return tiny


@pytest.fixture
async def publisher(settings: Settings) -> AsyncIterator[Publisher]:
    async with AdapterPublisher.from_settings(LanguageModelManifest, settings) as publisher:
        yield publisher


def made(tenant: str, publisher: Publisher, base: Path, canary_share: float = 0.0, **options: Any) -> PolicyTrainer:
    clock = options.pop("clock", None) or FakeClock()
    publication = Publication(tenant, publisher, Metrics("trainer"), clock, canary_share)
    return PolicyTrainer(publication, base, "tiny", 2, **options)


def send(trainer: PolicyTrainer, some: list[Judgment], offset: int = 0) -> None:
    """Verdicts may come before their sessions."""
    take([trainer], record(trainer.verdicts, some, offset))
    take([trainer], record(trainer.name, [each.trajectory for each in some], offset))


@pytest.mark.long
async def test_what_a_fleet_learned_is_published_and_an_erased_session_is_learned_no_more(
    settings: Settings, publisher: Publisher, base: Path
) -> None:
    (tenant,), erased, some = settings.tenants, Erased(), fleet(COUNT)
    trainer = made(tenant, publisher, base, erased=erased)
    await trainer.publication.resume()
    send(trainer, some)
    await trainer.learn()
    listing = (await read_adapters(settings.broker, tenant)).of(LANGUAGE_MODEL)
    (manifest,), (pointer,) = listing.manifests, listing.pointers
    assert pointer["version"] == manifest["version"]
    assert manifest["metrics"]["margin"] > manifest["metrics"]["margin_base"]
    assert manifest["metrics"]["perplexity_change"] <= 0.02
    assert (manifest["base"], manifest["architecture"], manifest["tools"]) == ("tiny", "qwen2", ["sql"])
    (tainted,) = (await publisher.published(tenant)).versions.values()
    learned = {each for each in some if stable_hash(each.trajectory.id) in unpack(tainted.learned_from)}
    assert len(learned) == manifest["sessions"] and 0 < len(learned) < COUNT

    gone = min(learned, key=lambda each: each.trajectory.id)
    erased.add_sessions(tenant, [stable_hash(gone.trajectory.session)])
    assert trainer.due()
    await publisher.revoke(tenant, tainted.version)
    await trainer.learn()
    (version,) = (await publisher.published(tenant)).versions.values()
    assert version.version != tainted.version
    assert stable_hash(gone.trajectory.id) not in unpack(version.learned_from)


@pytest.mark.long
async def test_the_same_pairs_are_learned_once_and_a_pinned_channel_stays(
    tenant: str, publisher: Publisher, base: Path
) -> None:
    trainer = made(tenant, publisher, base)
    send(trainer, fleet(COUNT))
    await trainer.learn()
    (version,) = (await publisher.published(tenant)).versions
    send(trainer, [judgment(*session(COUNT, past=True).trajectory.steps, label="abstained", session="x")], 1)
    await trainer.learn()
    assert list((await publisher.published(tenant)).versions) == [version]
    await publisher.rollback(tenant, version, pinned=True)
    send(trainer, [session(n, past=n % 3 != 1) for n in range(COUNT, COUNT + 20)], 2)
    await trainer.learn()
    published = await publisher.published(tenant)
    assert list(published.versions) == [version] and published.stable is not None and published.stable.record.pinned


@pytest.mark.long
@pytest.mark.parametrize("label", ["success", "failure"])
async def test_a_share_of_the_principals_tries_a_version_first(
    tenant: str, publisher: Publisher, base: Path, label: Any
) -> None:
    clock, share = FakeClock(), 0.5
    trainer = made(tenant, publisher, base, share, clock=clock)
    send(trainer, fleet(COUNT))
    await trainer.learn()
    stable = trainer.publication.running
    assert stable is not None and not trainer.publication.on_trial  # the first one has no rival
    send(trainer, [session(n, past=n % 3 != 1) for n in range(COUNT, COUNT + 40)], 1)
    await trainer.learn()
    registry = await publisher.published(tenant)
    assert trainer.publication.on_trial and registry.canary is not None and registry.stable is not None
    tried = registry.canary.record.version
    assert registry.stable.record.version == stable[1].version != tried
    for number in range(60):
        votes = []
        for agent in (f"p{n}" for n in range(7)):
            tries = in_cohort(agent, share, tried)
            ran, ended = (tried, label) if tries else (stable[1].version, "success")
            votes.append(judgment(call("run", adapter=ran), label=ended, session=f"{agent}{number}", agent=agent))
        take([trainer], record(trainer.verdicts, votes, 2 + number))
        clock.advance(VOTE_SECONDS)
        await trainer.publication.end_trial()
        if not trainer.publication.on_trial:
            break
    ended = (await publisher.published(tenant)).stable
    assert ended is not None and not trainer.publication.on_trial
    assert ended.record.version == (tried if label == "success" else stable[1].version)


async def test_a_model_that_is_missing_and_weights_without_a_storage_end_the_role_at_once(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="FLEETLORE_WEIGHTS_STORAGE"):
        await run_trainer(settings.with_(weights_storage=""), policy=str(tmp_path))
    monkeypatch.setattr("streams.training.trainer._LEARNING", ("no_such_package",))
    with pytest.raises(ModelUnavailable, match=r"no_such_package.*fleetlore-server\[policy\]"):
        await run_trainer(settings, policy=str(tmp_path))
