"""Tell who sent a record, and name sessions by it. Kafka does not pass on the producer's user, so senders sign.

A principal is the part of an agent's name before the first colon: `support:1` and `support:2` count once. A worker with
a key accepts only records of a principal's agents, signed with that principal's key, which derives from the worker's. A
relay signs as `*`: tokens tell its callers apart.

Senders choose session ids, so a principal and an id name a session: no other principal can write into it.
"""

import hmac
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Self
from unicodedata import normalize

from fleetlore.errors import ConfigError, InvalidEvent

__all__ = [
    "ANYONE", "SIGNED_BY", "Principals", "id_key", "principal_of", "review_key", "session_key", "signer", "signs_as",
]  # fmt: skip

SIGNED_BY: Final = "fleetlore-principal"
ANYONE: Final = "*"
_SELF_DECLARED: Final = "self-declared"
_LEAST_KEY: Final = 32
_OF_ONE = re.compile(r"([0-9a-f]{64}):([^:\s]+)")


def principal_of(agent: str) -> str:
    """Names that look alike, with composed or combining letters, are one."""
    return normalize("NFC", agent.partition(":")[0])


@lru_cache(maxsize=16_384)
def session_key(agent: str, session: str, part: int = 0) -> str:
    """Return 32 hex digits for a principal's session, and `#part` for a later part."""
    named = f"{principal_of(agent)}\x1f{session}".encode("utf-8", "surrogatepass")
    key = blake2b(named, digest_size=16).hexdigest()
    return key if part == 0 else f"{key}#{part}"


def id_key(session: str) -> str:
    """Return the name of all sessions of an id. Senders choose ids, and one may look like another session's key."""
    return f"id/{session}"


def review_key(session: str) -> str:
    return f"review/{session_key('', session)}"


class Principals:
    def __init__(self, key: str) -> None:
        self._key = key.encode()

    @classmethod
    def of(cls, key: str) -> Self | None:
        if key in ("", _SELF_DECLARED):
            return None
        if len(key) < _LEAST_KEY or _OF_ONE.fullmatch(key):
            raise ConfigError(
                f"FLEETLORE_PRINCIPAL_KEY of a worker is a secret of at least {_LEAST_KEY} characters, and no "
                f"principal's own key; or {_SELF_DECLARED!r}"
            )
        return cls(key)

    def key_of(self, principal: str) -> str:
        principal = normalize("NFC", principal)
        made = f"{hmac.digest(self._key, principal.encode(), 'sha256').hex()}:{principal}"
        if not _OF_ONE.fullmatch(made):
            raise ConfigError(f"a principal's name has no blanks and no colon: {principal!r}")
        return made

    def signed_by(self, headers: Mapping[str, bytes | None], topic: str, value: bytes) -> str:
        header = (headers.get(SIGNED_BY) or b"").decode("utf-8", "replace")
        name, _, mark = normalize("NFC", header).rpartition(" ")
        if headers.get("ce_specversion"):
            raise InvalidEvent("unsigned", "attributes in headers cannot be signed: send the event as JSON")
        if not name or not mark.isascii():
            raise InvalidEvent("unsigned", f"no principal signed it in the header {SIGNED_BY}")
        if not hmac.compare_digest(mark, _marked(hmac.digest(self._key, name.encode(), "sha256"), topic, value)):
            raise InvalidEvent("unsigned", f"it is not signed with the key of {name!r}")
        return name

    def signed_again(self, headers: Mapping[str, bytes | None], topic: str, value: bytes, part: bytes) -> bytes:
        name = self.signed_by(headers, topic, value)
        return f"{name} {_marked(hmac.digest(self._key, name.encode(), 'sha256'), topic, part)}".encode()


def signs_as(key: str) -> str | None:
    """Return a key's principal, or `ANYONE` for a worker's key."""
    if _OF_ONE.fullmatch(key):
        return principal_of(key.partition(":")[2])
    return None if Principals.of(key) is None else ANYONE


def signer(key: str) -> Callable[[str, bytes], tuple[str, bytes]] | None:
    """Return a function that makes a record's header from its topic and value."""
    name = signs_as(key)
    if name is None:
        return None
    of_one = key if _OF_ONE.fullmatch(key) else Principals(key).key_of(name)
    secret = bytes.fromhex(of_one.partition(":")[0])
    return lambda topic, value: (SIGNED_BY, f"{name} {_marked(secret, topic, value)}".encode())


def _marked(key: bytes, topic: str, value: bytes) -> str:
    return hmac.digest(key, topic.encode() + b"\n" + value, "sha256").hex()
