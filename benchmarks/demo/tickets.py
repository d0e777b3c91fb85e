"""Support tickets, from which the trainer learns the retrieval adapter by contrast.

Tickets about one matter share their meaning and hardly a word, so words alone rank the ways out of earlier tickets
badly. The front desk passes no ticket on. An agent that is sent back tries what the fleet suggests, then one desk after
the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import msgspec

from benchmarks.demo.catalogue import package_file

if TYPE_CHECKING:
    from fleetlore.agent.fleet import Fleet

TOOL = "tickets.assign"
FRONT_DESK = "front"
REFUSAL = "the front desk passes no ticket on: name the desk that handles it"
_WORDS = msgspec.toml.decode(package_file("tickets.toml"), type=dict[str, str])
DESKS = {desk: tuple(words.split()) for desk, words in _WORDS.items()}


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket and the desk that handles it, which its subject does not name."""

    number: int
    subject: str
    desk: str


def tickets(seed: str, count: int) -> Iterator[Ticket]:
    """Yield tickets that depend on `seed` alone."""
    rng = Random(f"tickets/{seed}")
    for _ in range(count):
        desk = rng.choice(sorted(DESKS))
        yield Ticket(rng.randint(10_000, 99_999), ", ".join(rng.sample(DESKS[desk], 2)), desk)


async def handle(fleet: Fleet, ticket: Ticket) -> int:
    """Assign a ticket in a new session. Return the number of wrong desks that were tried."""
    desks = Random(f"desks/{fleet.agent}/{ticket.number}").sample(sorted(DESKS), len(DESKS))
    goal = f"assign ticket {ticket.number}"
    async with fleet.session(goal, task=f"ticket-{ticket.number}") as session:
        for wrong, desk in enumerate([FRONT_DESK, *desks]):
            call = {"subject": ticket.subject, "desk": desk}
            async with session.action(TOOL, call) as action:
                if desk == ticket.desk:
                    action.result = f"ticket {ticket.number} is assigned"
                elif desk == FRONT_DESK:
                    action.fail("422", REFUSAL)
                else:
                    action.fail("409", f"ticket {ticket.number} is not for {desk}")
            if desk == ticket.desk:
                session.succeed(reward=1.0)
                return wrong - 1
    raise AssertionError(f"no desk handles ticket {ticket.number}")
