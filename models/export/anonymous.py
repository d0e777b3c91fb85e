"""Remove end users' identities from a session, as from lore (`models.memory.identities`)."""

from __future__ import annotations

from msgspec.structs import replace

from fleetlore.wire.definitions import Definitions
from fleetlore.wire.trajectory import Step, Trajectory
from models.memory.identities import identities, replacing


def anonymous(session: Trajectory) -> Trajectory:
    """The same session with identities replaced; itself where none is found."""
    texts = [session.goal]
    for step in session.steps:
        texts += (step.arguments, step.result, step.error_message or "")
    found = identities(texts)
    if not found:
        return session
    replaced = replacing(found)

    def told(step: Step) -> Step:
        error = step.error_message
        return replace(
            step,
            arguments=replaced(step.arguments),
            result=replaced(step.result),
            error_message=replaced(error) if error else error,
        )

    return replace(session, goal=replaced(session.goal), steps=tuple([told(step) for step in session.steps]))


def anonymous_definitions(given: Definitions) -> Definitions:
    """The same definitions with identities in their system text replaced."""
    return replace(given, system=replacing(identities([given.system]))(given.system))
