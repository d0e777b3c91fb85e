"""Support tickets, from which the trainer learns the policy adapter.

Each subject has its desk, which no ticket names. The front desk passes no ticket on. An agent that is sent back tries
one desk after the other, and some give up: of like states, some calls worked and some failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetlore.agent.fleet import Fleet

TOOL = "tickets.assign"
FRONT_DESK = "front"
REFUSAL = "the front desk passes no ticket on: name the desk that handles it"
DESKS = {
    "refund": "billing", "invoice": "billing", "discount": "billing", "parcel": "shipping", "courier": "shipping",
    "password": "accounts", "login": "accounts", "crack": "repairs", "leak": "repairs", "consent": "privacy",
    "crash": "software", "update": "software",
}  # fmt: skip
_TRIES = 4


def tickets(seed: str, count: int) -> Iterator[str]:
    """Yield the subjects of tickets. They depend on `seed` alone."""
    rng = Random(f"tickets/{seed}")
    yield from (rng.choice(sorted(DESKS)) for _ in range(count))


async def handle(fleet: Fleet, number: int, subject: str) -> bool:
    """Assign a ticket in a new session. Return whether its desk was found."""
    names = sorted(set(DESKS.values()))
    desks = Random(f"desks/{fleet.agent}/{number}").sample(names, _TRIES)
    async with fleet.session(f"assign a ticket about {subject}", task=f"ticket/{subject}") as session:
        for desk in [FRONT_DESK, *desks]:
            async with session.action(TOOL, {"subject": subject, "desk": desk}) as action:
                if desk == DESKS[subject]:
                    action.result = "the ticket is assigned"
                    session.succeed(reward=1.0)
                    return True
                if desk == FRONT_DESK:
                    action.fail("422", REFUSAL)
                else:
                    action.fail("409", f"a ticket about {subject} is not for {desk}")
        session.fail(reward=0.0)
    return False
