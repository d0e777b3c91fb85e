import asyncio
from collections.abc import Iterator

import pytest

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.config import Settings
from sinks.topics import ensure_topics


@pytest.fixture(scope="session")
def address(broker: EmbeddedBroker) -> Iterator[str]:
    """A broker of the pages alone, as their examples belong to the default tenant."""
    with EmbeddedBroker() as mine:
        asyncio.run(ensure_topics(Settings(broker=mine.address, partitions=1)))
        yield mine.address
