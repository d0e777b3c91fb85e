"""Read all judged sessions of a tenant from the log, whole: a judgment holds a digest, `trajectories` the session."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiokafka import ConsumerRecord
from msgspec.structs import replace

from fleetlore.config import Settings
from fleetlore.kafka.read import end_offsets, observer, partitions_of, read_until
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Judgment
from streams.stage.erased import Erased
from streams.training.calls import trajectories_of
from streams.training.judgment_log import judgments_of


async def judged_sessions(settings: Settings, tenant: str) -> list[Judgment]:
    """The newest judgment of each session that the log still holds, without what was erased, sorted by id.

    A session that has left `trajectories` already is as its judgment has it: with longer texts cut.

    Raises:
        BrokerUnavailable: the broker does not answer.
    """
    erased = Erased()
    await erased.read(settings.cluster, [tenant])
    judged: dict[str, Judgment] = {}
    async for record in _records(settings, tenant, "judgments"):
        for judgment, _ in judgments_of(record):
            session = judgment.trajectory
            known = judged.get(session.id)
            # Of one revision the later counts: the session was judged again.
            if known is None or session.revision >= known.trajectory.revision:
                judged[session.id] = judgment
    judged = {id: each for id, each in judged.items() if not erased.holds(tenant, each.trajectory.session)}
    async for record in _records(settings, tenant, "trajectories"):
        for whole in trajectories_of(record):
            digest = judged.get(whole.id)
            if digest is not None and whole.events == digest.trajectory.events:
                judged[whole.id] = replace(digest, trajectory=whole)
    return [judged[id] for id in sorted(judged)]


async def _records(settings: Settings, tenant: str, name: str) -> AsyncIterator[ConsumerRecord]:
    async with observer(settings.cluster) as reader:
        ends = await end_offsets(reader, await partitions_of(reader, topic(tenant, name)))
        if ends:
            await reader.seek_to_beginning(*ends)
            async for records in read_until(reader, ends):
                for record in records:
                    yield record
