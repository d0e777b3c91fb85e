"""Say on the log what was erased, so that no stage takes it up again.

The record names nothing: it holds hashes (`fleetlore.stats.hashing.stable_hash`), and stays for ever on the compacted
topic `erasures`.
"""

from __future__ import annotations

import msgspec


class Erasure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is erased: a session, or what an agent did before a moment.

    Attributes:
        time: when it was asked for, in seconds since the Unix epoch.
        sessions: hashes of the session's id and of the ids of its parts; empty where an agent is meant.
        agent: hash of the agent's name.
        before: of an agent: its events before this moment are dropped, in seconds since the Unix epoch.
    """

    time: float
    sessions: tuple[int, ...] = ()
    agent: int | None = None
    before: float = 0.0

    @property
    def key(self) -> str:
        """Key of its record on `erasures`."""
        return f"session/{self.sessions[0]:x}" if self.sessions else f"agent/{self.agent or 0:x}"

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, value: bytes) -> Erasure:
        """Raises msgspec.DecodeError (a ValueError) for what is no erasure."""
        return msgspec.json.decode(value, type=cls)
