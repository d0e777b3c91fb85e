"""Time how soon a version reaches a large fleet: 1,000 subscribers on one embedded broker.

Each is an agent's real subscriber with its own policy. 250 share a process, a connection, and the work of folding and
probing a version. Versions are published one after the other. The time begins when the pointer is made, after weights
and manifest. It ends when each subscriber has verified, folded, probed and swapped. The figure is the 99th percentile.
A rollback, a pin, and a revocation of the running version are timed separately.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import orjson

from benchmarks.advice import percentile
from benchmarks.embedded_broker import EmbeddedBroker
from benchmarks.random_adapters import manifest_for, random_weights
from benchmarks.report import Report, Row
from fleetlore.adapters.signatures import create_signing_key, public_keys
from fleetlore.adapters.slot import Prepared
from fleetlore.adapters.subscriber import AdapterSubscriber
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable
from fleetlore.retrieval.adapter import RetrievalAdapter, RetrievalSlot
from fleetlore.wire.adapter_manifest import AdapterPointer, RetrievalManifest
from sinks.adapter_publisher import AdapterPublisher
from sinks.topics import ensure_topics

TENANT = "default"
SUBSCRIBERS = 1000
PROCESSES = 4
VERSIONS = 5
PAUSE_SECONDS = 4.0
JOIN_SECONDS = 240.0
BAR_SECONDS = 1.0


def run(quick: bool) -> Report:
    count, versions = (40, 2) if quick else (SUBSCRIBERS, VERSIONS)
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker() as broker:
        key = create_signing_key(Path(folder) / "key")
        settings = Settings(broker=broker.address, tenants=(TENANT,), signing_key=str(Path(folder) / "key"))
        asyncio.run(ensure_topics(settings))
        published, decided = asyncio.run(_measure(settings, key.public_base64, count, versions))
    return Report(
        name="subscribers",
        figure=percentile(published, 99),
        bar=BAR_SECONDS,
        unit="s, p99",
        higher_is_better=False,
        peers={},
        rows=(
            Row(
                name="a new version in service",
                figure=percentile(published, 99),
                unit="s, p99",
                note=f"{count:,} subscribers, {versions} versions",
            ),
            Row(name="  the same", figure=percentile(published, 50), unit="s, p50"),
            *(
                row
                for name, taken in decided.items()
                for row in (
                    Row(name=name, figure=percentile(taken, 99), unit="s, p99"),
                    Row(name="  the same", figure=percentile(taken, 50), unit="s, p50"),
                )
            ),
        ),
    )


async def _measure(
    settings: Settings, public: str, count: int, versions: int
) -> tuple[list[float], dict[str, list[float]]]:
    """Seconds until each subscriber ran each version, and until it did what was decided."""
    share = count // PROCESSES
    children = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.subscribers", settings.broker, public, str(share), str(number)),
            stdout=asyncio.subprocess.PIPE,
        )
        for number in range(PROCESSES)
    ]
    try:
        async with AdapterPublisher.from_settings(RetrievalManifest, settings) as publisher:
            first = (await _publish(publisher, 0)).version
            async with asyncio.timeout(JOIN_SECONDS):
                await asyncio.gather(*(_applied(child, first, share) for child in children))
            published: list[float] = []
            for seed in range(1, versions + 1):
                published += await _timed(children, share, partial(_publish, publisher, seed))
            last = (await publisher.published(TENANT)).pointer
            assert last is not None
            decisions: dict[str, Callable[[], Awaitable[AdapterPointer | None]]] = {
                "a rollback": lambda: publisher.rollback(TENANT, first),
                "a pin": lambda: publisher.rollback(TENANT, last.version, pinned=True),
                "a revocation": lambda: publisher.revoke(TENANT, last.version),
            }
            decided = {name: await _timed(children, share, decide) for name, decide in decisions.items()}
    except TimeoutError:
        raise BrokerUnavailable("a version did not reach all subscribers in time") from None
    finally:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    return published, decided


async def _timed(
    children: list[asyncio.subprocess.Process], share: int, point: Callable[[], Awaitable[AdapterPointer | None]]
) -> list[float]:
    await asyncio.sleep(PAUSE_SECONDS)
    pointer = await point()
    assert pointer is not None
    async with asyncio.timeout(JOIN_SECONDS):
        times = await asyncio.gather(*(_applied(child, pointer.version, share) for child in children))
    return [moment - pointer.created for each in times for moment in each]


async def _publish(publisher: AdapterPublisher[RetrievalManifest], seed: int) -> AdapterPointer:
    weights = random_weights(seed)
    return await publisher.publish(weights, manifest_for(weights, TENANT, ordinal=seed + 1))


async def _applied(child: asyncio.subprocess.Process, version: str, count: int) -> list[float]:
    """When each subscriber of a child began to run the version."""
    assert child.stdout is not None
    times: list[float] = []
    while len(times) < count:
        line = await child.stdout.readline()
        if not line:
            raise BrokerUnavailable("a process of subscribers ended")
        found, moment = orjson.loads(line)
        if found == version:
            times.append(moment)
    return times


class _Told(RetrievalSlot):
    """A policy that tells when it runs another version."""

    def apply(self, loaded: Prepared[RetrievalAdapter]) -> None:
        super().apply(loaded)
        sys.stdout.write(f'["{self.version}", {time.time()}]\n')
        sys.stdout.flush()


async def _subscribe(bootstrap: str, public: str, count: int, number: int) -> None:
    trusted = public_keys(public)
    for place in range(count):
        await AdapterSubscriber(bootstrap, TENANT, f"agent-{number}-{place}", trusted, _Told()).start()
        await asyncio.sleep(0.02)  # a fleet does not start at the same instant
    await asyncio.Event().wait()


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # that its version is revoked, once each
    asyncio.run(_subscribe(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
