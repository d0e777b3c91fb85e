"""Support tickets, from which the trainer learns the policy adapter.

A desk is named by its queue, which the agents do not know. An agent that is sent back finds the queue or gives up: of
like states, some calls worked and some failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetlore.agent.fleet import Fleet

TOOL = "tickets.assign"
REFUSAL = "no such desk: a desk is named by its queue"
DESKS = {
    "refund": "billing", "invoice": "billing", "discount": "billing", "parcel": "shipping", "courier": "shipping",
    "password": "accounts", "login": "accounts", "crack": "repairs", "leak": "repairs", "consent": "privacy",
    "crash": "software", "update": "software",
}  # fmt: skip
_GIVE_UP = 0.4


def tickets(seed: str, count: int) -> Iterator[str]:
    """Yield the subjects of tickets. They depend on `seed` alone."""
    rng = Random(f"tickets/{seed}")
    yield from (rng.choice(sorted(DESKS)) for _ in range(count))


async def handle(fleet: Fleet, number: int, subject: str) -> bool:
    """Assign a ticket in a new session. Return whether its desk was found."""
    desk = DESKS[subject]
    gives_up = Random(f"desks/{fleet.agent}/{number}").random() < _GIVE_UP
    async with fleet.session(f"assign a ticket about {subject}", task=f"ticket/{subject}") as session:
        for named in (desk, desk if gives_up else f"queue-{desk}"):
            async with session.action(TOOL, {"subject": subject, "desk": named}) as action:
                if named == desk:
                    action.fail("422", REFUSAL)
                else:
                    action.result = "the ticket is assigned"
        if gives_up:
            session.fail(reward=0.0)
        else:
            session.succeed(reward=1.0)
    return not gives_up
