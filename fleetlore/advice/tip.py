"""Hold one thing that may be shown to a model: what it says, and the evidence for each string of others in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from fleetlore.wire.lore import MemoryItem

__all__ = ["Part", "Quote", "Tip", "all_of"]

# What the words of others are: an error's or a field's (the environment wrote them), the class of an error, a call or a
# part of one, a name of a place, or an operator's own document.
Sort = Literal["error", "class", "call", "name", "document"]


class Quote(NamedTuple):
    """Words of others in a tip.

    Attributes:
        agents: how many agents produced this very string.
        others: goals of the sessions that did, or sessions where these are not known: of a fleet whose agents share
            one name two of them stand for two agents.
        harmless: of a call: it differs from the one that failed by plain identifiers alone, or the error itself names
            the new value (`MemoryItem.plain`, `MemoryItem.named`).
        danger: of a call: it changes something outside, or breaks a safety rule (`MemoryItem.danger`).
    """

    text: str
    agents: int
    others: int
    sort: Sort
    harmless: bool = False
    danger: bool = False


# Words of ours or of the asker, or a quote of others.
Part = str | Quote


class Tip(NamedTuple):
    """One thing that may be shown. `fleetlore.advice.gate.tell` alone makes its text.

    Attributes:
        id: from a bounded set; outcomes name it, and the holdout draws by it.
        source: which of `fleetlore.advice.sources` it comes from.
        parts: what it says, in order; one imperative line, or a few where it lists calls or a place.
        key: by it a session is shown the tip once; empty for one that is shown each time.
        kind, rejected: of the failure that it warns of: the error without names, and the names of the call, lower-case.
        brings: names, or parts of a call, that it says to use.
        chance: P(the call fails), 0..1, of a tip before a call; None of others.
        sure: whether the call fails so surely that it may be held once (`Session.hold`).
        agents: that back it, the fewest of any string in it.
        call: arguments that the agent may send instead, as they are; None where that is not known.
        item: that it is of; None of what the call model or a pattern says.
        pattern: class-level id of the failure that it is about; None where it is about none.
        tried: whether the holdout withholds it from some sessions.
        text: what is shown; empty before the gate has made it.
    """

    id: str
    source: str
    parts: tuple[Part, ...]
    key: str = ""
    kind: str = ""
    rejected: tuple[str, ...] = ()
    brings: tuple[str, ...] = ()
    chance: float | None = None
    sure: bool = False
    agents: int = 0
    call: object = None
    item: MemoryItem | None = None
    pattern: str | None = None
    tried: bool = True
    text: str = ""

    @property
    def quotes(self) -> Iterator[Quote]:
        """The words of others in it."""
        return (part for part in self.parts if isinstance(part, Quote))


def all_of(parts: Iterable[Part]) -> str:
    """What a tip says with no gate before it: for a person who looks after the fleet."""
    return "".join(part.text if isinstance(part, Quote) else part for part in parts)
