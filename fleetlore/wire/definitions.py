"""Define what a model was given besides its goal, its system text and its tools: sessions name it by its hash."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

TOPIC = "definitions"


class Definitions(msgspec.Struct, frozen=True, kw_only=True):
    """What a model was given at the start of a session.

    Attributes:
        tools: their definitions, in whatever form the model's API takes them.
    """

    system: str = ""
    tools: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> bytes:
        """The same definitions give the same bytes, whatever the order of their keys."""
        return msgspec.json.encode(self, order="deterministic")

    @classmethod
    def from_json(cls, value: bytes) -> Definitions:
        """Raises msgspec.DecodeError (a ValueError) for what is none."""
        return msgspec.json.decode(value, type=cls)


def id_of(value: bytes) -> str:
    """The hash that sessions name definitions by: the sha256 of their JSON, and the key of their record."""
    return sha256(value).hexdigest()
