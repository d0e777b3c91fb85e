"""Say who sent a record: Kafka tells a reader no user, so who sends signs.

A principal is whose word an agent speaks: the part of its name before the first colon. `support`, `support:1` and
`support:2` are one, and have one voice wherever agents are counted. A worker that has a key takes only records that a
principal signed, and of those only events of its own agents. Each principal's key is made of the worker's, so there is
no list to keep. A relay signs as `*`: it has told its callers apart by their tokens.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping
from typing import Final

from fleetlore.errors import ConfigError, InvalidEvent

__all__ = ["ANYONE", "SIGNED_BY", "Principals", "principal_of", "signer", "signs_as"]

SIGNED_BY: Final = "fleetlore-principal"
ANYONE: Final = "*"
# What a worker's setting says where agents are who they say.
_SELF_DECLARED: Final = "self-declared"
_LEAST_KEY: Final = 32
_OF_ONE = re.compile(r"([0-9a-f]{64}):([^:\s]+)")


def principal_of(agent: str) -> str:
    """Whose word an agent speaks."""
    return agent.partition(":")[0]


class Principals:
    """Knows every principal's key; `key` is that of a worker."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    @classmethod
    def of(cls, key: str) -> Principals | None:
        """None where the setting `FLEETLORE_PRINCIPAL_KEY` of a worker leaves agents self-declared.

        Raises:
            ConfigError: it is short, or that of one principal.
        """
        if key in ("", _SELF_DECLARED):
            return None
        if len(key) < _LEAST_KEY or _OF_ONE.fullmatch(key):
            raise ConfigError(
                f"FLEETLORE_PRINCIPAL_KEY of a worker is a secret of at least {_LEAST_KEY} characters, and no "
                f"principal's own key; or {_SELF_DECLARED!r}"
            )
        return cls(key)

    def key_of(self, principal: str) -> str:
        """The key of one principal, with its name behind a colon."""
        made = f"{hmac.digest(self._key, principal.encode(), 'sha256').hex()}:{principal}"
        if not _OF_ONE.fullmatch(made):
            raise ConfigError(f"a principal's name has no blanks and no colon: {principal!r}")
        return made

    def signed_by(self, headers: Mapping[str, bytes | None], topic: str, value: bytes) -> str:
        """Who signed a record.

        Raises:
            InvalidEvent: `unsigned`: nobody did whose key this worker can make.
        """
        name, _, mark = (headers.get(SIGNED_BY) or b"").decode("utf-8", "replace").rpartition(" ")
        if headers.get("ce_specversion"):
            raise InvalidEvent("unsigned", "attributes in headers cannot be signed: send the event as JSON")
        if not name or not mark.isascii():
            raise InvalidEvent("unsigned", f"no principal signed it in the header {SIGNED_BY}")
        if not hmac.compare_digest(mark, _marked(hmac.digest(self._key, name.encode(), "sha256"), topic, value)):
            raise InvalidEvent("unsigned", f"it is not signed with the key of {name!r}")
        return name

    def signed_again(self, headers: Mapping[str, bytes | None], topic: str, value: bytes, part: bytes) -> bytes:
        """The header of a part of a record, by who signed the record.

        Raises:
            InvalidEvent: `unsigned`, see `signed_by`.
        """
        name = self.signed_by(headers, topic, value)
        return f"{name} {_marked(hmac.digest(self._key, name.encode(), 'sha256'), topic, part)}".encode()


def signs_as(key: str) -> str | None:
    """The principal that a key signs for, `ANYONE` where it lends any name; None without a key.

    Raises:
        ConfigError: see `Principals.of`.
    """
    if _OF_ONE.fullmatch(key):
        return key.partition(":")[2]
    return None if Principals.of(key) is None else ANYONE


def signer(key: str) -> Callable[[str, bytes], tuple[str, bytes]] | None:
    """What makes the header of a record of its topic and value; None without a key.

    Raises:
        ConfigError: see `Principals.of`.
    """
    name = signs_as(key)
    if name is None:
        return None
    of_one = key if _OF_ONE.fullmatch(key) else Principals(key).key_of(name)
    secret = bytes.fromhex(of_one.partition(":")[0])
    return lambda topic, value: (SIGNED_BY, f"{name} {_marked(secret, topic, value)}".encode())


def _marked(key: bytes, topic: str, value: bytes) -> str:
    return hmac.digest(key, topic.encode() + b"\n" + value, "sha256").hex()
