"""Sessions that go on after they were closed are handed on whole, and not once an event."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from fleetlore.wire.topics import partition_for
from tests.streams.log_pipeline import PARTITIONS, LogPipeline

MakePipeline = Callable[..., LogPipeline]

RIGHT = ("bash", {"command": "pip install numpy"}, "Successfully installed", None)


def trajectories(pipeline: LogPipeline) -> int:
    """How many were handed on; one record may hold several."""
    values = [record.value or b"[]" for record in pipeline.log.read_all("fleetlore.acme.trajectories")]
    return sum(len(parts) if isinstance(parts := orjson.loads(value), list) else 1 for value in values)


async def test_a_session_that_paused_is_handed_on_once_a_batch(log_pipeline: MakePipeline) -> None:
    pipeline = log_pipeline(batch_records=16, silent_seconds=60.0)
    paused = pipeline.story.session("s", *[RIGHT] * 78)
    other = next(f"o{n}" for n in range(99) if partition_for(f"o{n}", PARTITIONS) == partition_for("s", PARTITIONS))
    meanwhile = [event._replace(time=event.time + 1000) for event in pipeline.story.session(other, RIGHT)]
    later = [event._replace(time=event.time + 2000) for event in paused[8:]]
    await pipeline.send([*paused[:8], *meanwhile])
    await pipeline.drain()
    before = trajectories(pipeline)
    await pipeline.send(later)
    await pipeline.drain()
    assert trajectories(pipeline) - before <= 1 + len(later) // 16
    assert ("s", "success", 80) in (await pipeline.knowledge()).judgments
