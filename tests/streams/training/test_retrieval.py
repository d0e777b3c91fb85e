"""From failed calls on the log to a version that agents follow, on a real broker."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from fleetlore.adapters.listing import read_adapters
from fleetlore.clock import Clock
from fleetlore.config import Settings
from fleetlore.stats.hashing import stable_hash
from fleetlore.testing import FakeClock
from fleetlore.wire.adapter_manifest import RETRIEVAL, RetrievalManifest, in_cohort
from fleetlore.wire.trajectory import Judgment
from models.adapter.gate import VOTE_SECONDS
from models.adapter.pairs import Case
from sinks.adapter_publisher import AdapterPublisher
from sinks.metrics import Metrics
from streams.offline.erase import has_learned
from streams.offline.erase_search import Found, OnTopic
from streams.stage.operators import Erased
from streams.training.publication import Publication
from streams.training.trainer import RetrievalTrainer
from streams.training.window import take
from tests.build import call, judgment
from tests.models.adapter.inflected import sessions
from tests.streams.training.conftest import record, send

COUNT = 120


@pytest.fixture(autouse=True, scope="module")
def learned_once() -> Iterator[None]:
    """Equal cases give equal weights, so these tests learn each list of cases once: that costs seconds."""
    from models.adapter import contrastive

    learned, train = dict[Any, Any](), contrastive.train

    def once(cases: Sequence[Case], *arguments: Any, **options: Any) -> Any:
        key = tuple(case._replace(agent="") for case in cases)  # who met a case does not matter here
        if key not in learned:
            learned[key] = train(cases, *arguments, **options)
        return learned[key]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(contrastive, "train", once)
        yield


@pytest.fixture
async def publisher(settings: Settings) -> AsyncIterator[AdapterPublisher[RetrievalManifest]]:
    async with AdapterPublisher.from_settings(RetrievalManifest, settings) as publisher:
        yield publisher


def made(
    tenant: str,
    publisher: AdapterPublisher[RetrievalManifest],
    clock: Clock | None = None,
    canary_share: float = 0.0,
    **options: Any,
) -> RetrievalTrainer:
    metrics, clock = Metrics("trainer"), clock or FakeClock()
    return RetrievalTrainer(Publication(tenant, publisher, metrics, clock, canary_share), **options)


AGENT = """
import asyncio, sys

from fleetlore import Fleet


async def main():
    async with Fleet("reader", tenant=sys.argv[1], adapters=True, ready_seconds=30.0) as fleet:
        async with asyncio.timeout(30):
            while fleet.adapter_version is None:
                await asyncio.sleep(0.1)
            version, slot = fleet.adapter_version, fleet.retrieval
        from fleetlore.retrieval.adapter import Ranking

        texts = ["refused: riverman stoneway cloudish with_a", "refused: dusty nand with_b"]
        scores = Ranking(texts, slot.encoder).scores("refused: rivering stoneless clouded nand", slot.value)
        print(version, scores.argmax(), *({"torch", "peft", "transformers", "sklearn", "scipy"} & set(sys.modules)))


asyncio.run(main())
"""


@pytest.mark.long
async def test_what_a_fleet_learned_is_followed_by_an_agent_without_torch(
    settings: Settings, publisher: AdapterPublisher[RetrievalManifest]
) -> None:
    (tenant,) = settings.tenants
    some = sessions(0, COUNT)
    await send(settings, some)
    trainer = made(tenant, publisher)
    await trainer.publication.resume()
    take([trainer], record(trainer.name, some, 0))
    await trainer.learn()

    listing = (await read_adapters(settings.broker, tenant)).of(RETRIEVAL)
    (manifest,), (pointer,) = listing.manifests, listing.pointers
    version = manifest["version"]
    assert pointer["version"] == version
    assert (manifest["sessions"], manifest["agents"], manifest["tools"]) == (COUNT, 7, ["run"])
    assert manifest["size_bytes"] < 40_000 and manifest["metrics"]["mrr"] > manifest["metrics"]["mrr_words"]

    environ, pipe = {**os.environ, **settings.to_env()}, asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", AGENT, tenant), env=environ, stdout=pipe, stderr=pipe
    )
    said, errors = await asyncio.wait_for(process.communicate(), 90)
    assert said.decode().split() == [version, "0"], errors.decode()


ROLE = """
import asyncio

from fleetlore.config import Settings
from streams.training.trainer import run_trainer

asyncio.run(run_trainer(Settings.from_env(), niceness=0))
"""


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_the_role_publishes_what_it_learned(settings: Settings) -> None:
    (tenant,) = settings.tenants
    await send(settings, sessions(0, COUNT))
    environ = {**os.environ, **settings.with_(trainer_cpu_share=1.0).to_env()}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", ROLE, env=environ)
    try:
        async with asyncio.timeout(240):
            while not (await read_adapters(settings.broker, tenant)).of(RETRIEVAL).pointers:
                await asyncio.sleep(0.5)
        process.terminate()
        async with asyncio.timeout(30):
            assert await process.wait() == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def test_sessions_without_a_case_wake_nobody(
    settings: Settings, publisher: AdapterPublisher[RetrievalManifest]
) -> None:
    clock = FakeClock()
    trainer = made(settings.tenants[0], publisher, clock)
    plain = [replace(each, steps=each.steps[1:]) for each in sessions(0, 60)]
    take([trainer], record(trainer.name, plain, 0))
    clock.advance(1e4)
    assert not trainer.due()
    take([trainer], record(trainer.name, sessions(0, 1), 1))
    assert not trainer.due()
    clock.advance(61.0)
    assert trainer.due()


def voted(agent: str, number: int, version: str, label: Any) -> Judgment:
    return judgment(call("run", adapter=version), label=label, session=f"{label}{agent}{number}", agent=agent)


@pytest.mark.long
@pytest.mark.parametrize("label", ["success", "failure"])
async def test_a_share_of_the_agents_tries_a_version_first(
    settings: Settings, publisher: AdapterPublisher[RetrievalManifest], label: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tenant,) = settings.tenants
    clock, share = FakeClock(), 0.5
    trainer = made(tenant, publisher, clock, share)
    take([trainer], record(trainer.name, sessions(0, COUNT), 0))
    await trainer.learn()
    stable = trainer.publication.running
    assert stable is not None and not trainer.publication.on_trial  # the first one has no rival
    monkeypatch.setattr("models.adapter.gate.TOLERANCE", 1.0)
    take([trainer], record(trainer.name, sessions(COUNT, 20), 1))
    await trainer.learn()
    registry = await publisher.published(tenant)
    assert trainer.publication.on_trial and registry.canary is not None and registry.pointer is not None
    tried = registry.canary.version
    assert registry.pointer.version == stable[1].version != tried
    for number in range(40):
        votes = []
        for agent in (f"agent{n}" for n in range(8)):
            tries = in_cohort(agent, share, tried)
            votes.append(voted(agent, number, tried if tries else stable[1].version, label if tries else "success"))
        take([trainer], record(trainer.verdicts, votes, number))
        clock.advance(VOTE_SECONDS)
        await trainer.publication.end_trial()
        if not trainer.publication.on_trial:
            break
    pointer = (await publisher.published(tenant)).pointer
    assert pointer is not None
    assert pointer.version == (tried if label == "success" else stable[1].version)
    assert trainer.publication.running is not None and trainer.publication.running[1].version == pointer.version


@pytest.mark.long
async def test_a_fleet_of_few_principals_tries_nothing_and_is_told_so_once(
    settings: Settings,
    publisher: AdapterPublisher[RetrievalManifest],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tenant,) = settings.tenants
    monkeypatch.setattr("models.adapter.gate.TOLERANCE", 1.0)
    trainer, versions = made(tenant, publisher, FakeClock(), 0.5), set()
    for number in range(3):
        some = sessions(0, COUNT) if not number else sessions(COUNT + 20 * (number - 1), 20)
        # One of these is on one side only, whatever is drawn.
        take(
            [trainer],
            record(trainer.name, [replace(each, agent=f"p{i % 3}:{i}") for i, each in enumerate(some)], number),
        )
        await trainer.learn()
        running = trainer.publication.running
        assert running is not None and not trainer.publication.on_trial
        pointer = (await publisher.published(tenant)).pointer
        assert pointer is not None and pointer.version == running[1].version
        versions.add(pointer.version)
    assert len(versions) == 3
    assert [each.levelname for each in caplog.records if "of 3 principals" in each.message] == ["WARNING"]


@pytest.mark.long
async def test_what_a_person_rolled_back_and_pinned_stays(
    settings: Settings, publisher: AdapterPublisher[RetrievalManifest]
) -> None:
    (tenant,) = settings.tenants
    trainer = made(tenant, publisher)
    take([trainer], record(trainer.name, sessions(0, COUNT), 0))
    await trainer.learn()
    (version,) = (await publisher.published(tenant)).versions
    await publisher.rollback(tenant, version, pinned=True)
    take([trainer], record(trainer.name, sessions(COUNT, 20), 1))
    await trainer.learn()
    published = await publisher.published(tenant)
    assert list(published.versions) == [version] and published.pointer is not None and published.pointer.pinned


@pytest.mark.long
async def test_an_erased_session_is_learned_no_more(
    settings: Settings, publisher: AdapterPublisher[RetrievalManifest]
) -> None:
    (tenant,) = settings.tenants
    erased = Erased()
    trainer = made(tenant, publisher, erased=erased)
    take([trainer], record(trainer.name, sessions(0, COUNT), 0))
    await trainer.learn()
    (tainted,) = (await publisher.published(tenant)).versions.values()
    gone = Found()
    gone.topics["trajectories"] = OnTopic(places={(0, 0)})
    assert has_learned(tainted, gone)
    erased.add_sessions(tenant, [stable_hash("s3")])
    assert trainer.due()
    await publisher.revoke(tenant, tainted.version)
    await trainer.learn()
    (version,) = (await publisher.published(tenant)).versions.values()
    assert version.version != tainted.version and version.sessions == COUNT - 1
