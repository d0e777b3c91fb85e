"""Read all judged sessions of a tenant from the log, whole: a judgment holds a digest, `trajectories` the session."""

from __future__ import annotations

from msgspec.structs import replace

from fleetlore.config import Settings
from fleetlore.kafka.read import records_of
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Judgment, Trajectory
from streams.stage.operators import Erased
from streams.training.window import values_of


async def judged_sessions(settings: Settings, tenant: str) -> list[Judgment]:
    """The newest judgment of each session that the log still holds, without what was erased, sorted by id.

    A session that has already left `trajectories` comes from its judgment, with longer texts cut.
    """
    erased = Erased()
    await erased.read(settings.cluster, [tenant])
    judged: dict[str, Judgment] = {}
    async for record in records_of(settings.cluster, topic(tenant, "judgments")):
        for judgment in values_of(record, Judgment):
            session = judgment.trajectory
            known = judged.get(session.id)
            # If two have the same revision the later one counts: the session was judged again.
            if known is None or session.revision >= known.trajectory.revision:
                judged[session.id] = judgment
    for id, session in [(id, each.trajectory) for id, each in judged.items()]:
        if erased.holds(tenant, session.agent, session.session):
            del judged[id]
    async for record in records_of(settings.cluster, topic(tenant, "trajectories")):
        for whole in values_of(record, Trajectory):
            digest = judged.get(whole.id)
            if digest is not None and not whole.is_open and whole.events == digest.trajectory.events:
                judged[whole.id] = replace(digest, trajectory=whole)
    return [judged[id] for id in sorted(judged)]
