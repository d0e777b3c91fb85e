"""Define an operator's decisions about lore: what is revoked, and which agents are distrusted.

The newest decision about an item, a pattern or an agent stays for ever on the compacted topic `decisions`, with who
took it, when and why.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["item", "pattern", "agent"]
TOPIC = "decisions"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision about one thing; the newest one counts.

    Attributes:
        id: of the item or pattern; of an agent its name.
        on: an item or pattern is revoked, an agent distrusted; False where that is undone.
        by: who decided it.
        time: when, in seconds since the Unix epoch.
    """

    kind: Kind
    id: str
    on: bool
    by: str
    why: str
    time: float

    @property
    def key(self) -> str:
        """Key of its record on `decisions`."""
        return f"{self.kind}/{self.id}"

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, value: bytes) -> Decision:
        """Raises msgspec.DecodeError (a ValueError) for what is no decision."""
        return msgspec.json.decode(value, type=cls)
