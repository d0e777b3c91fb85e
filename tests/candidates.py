"""A session's contribution to a memory item, in one line."""

from typing import Any

from msgspec.structs import replace

from models.memory.candidate import Candidate


def candidate(session: str = "s", **changes: Any) -> Candidate:
    """To a recovery that the session backs; `changes` are other fields of `Candidate`."""
    made = Candidate(
        item_id="i",
        tenant="default",
        kind="recovery",
        side="success",
        session=session,
        agent="a",
        seen=1.0,
        revision=(1, 0.0),
        title="title",
        description="description",
        content="content",
        when="when",
    )
    return replace(made, **changes)
