"""Identify a request's sender, and parse its CloudEvents."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from fleetlore.config import DEFAULT_TENANT, check_tenant
from fleetlore.errors import ConfigError, InvalidEvent
from fleetlore.wire.decode import read_json
from fleetlore.wire.events import KINDS, Event, checked_name
from fleetlore.wire.incoming import incoming, latest_from, of_headers

__all__ = ["NUMBERLESS", "OWN_HEADERS", "Caller", "caller_of", "events_of", "read_tokens"]

_AGENT, _TENANT, _TOKEN = "fleetlore-agent", "fleetlore-tenant", "fleetlore-token"
OWN_HEADERS = "fleetlore-"
_LEAST_TOKEN = 16
_OPERATOR = "operator"
_UNNAMED = "agent"
_HEADER = "ce-"
NUMBERLESS = -1


class Caller(NamedTuple):
    """The caller of a request. `sure`: a token proves who it is. `operator`: it may decide what agents are shown."""

    tenant: str
    agent: str
    sure: bool = False
    operator: bool = False

    @property
    def share(self) -> tuple[str, str]:
        """Key of the caller's entries in shared state."""
        return self.tenant, self.agent


# By sha256 of the token, against timing attacks.
Tokens = Mapping[bytes, Caller]


def read_tokens(path: Path) -> Tokens:
    """Read callers by token from a file."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the tokens in {path} cannot be read: {error}") from None
    tokens: dict[bytes, Caller] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if not 2 <= len(words) <= 4 or words[3:] not in ([], [_OPERATOR]) or len(words[0]) < _LEAST_TOKEN:
            wanted = f"a token of at least {_LEAST_TOKEN} characters, an agent, a tenant and at most `{_OPERATOR}`"
            raise ConfigError(f"{path}, line {number}: give {wanted}")
        key = _hashed(words[0])
        if key in tokens:
            raise ConfigError(f"{path}, line {number}: the token stands there twice; each is one agent's")
        tenant = check_tenant(words[2] if len(words) > 2 else DEFAULT_TENANT)
        tokens[key] = Caller(tenant, checked_name("agent", words[1]), sure=True, operator=len(words) == 4)
    if not tokens:
        raise ConfigError(f"{path} holds no token")
    return tokens


def caller_of(request: Request, tokens: Tokens | None, *, bearer: bool = True) -> Caller:
    """Return the caller. `bearer`: accept `Authorization`, which at the gateway is the provider's.

    Raises HTTPException: 401, 403 for another agent or tenant than the token's, 400.
    """
    headers = request.headers
    named, tenant = request.path_params.get("agent") or headers.get(_AGENT, ""), headers.get(_TENANT, "")
    if tokens is None:
        try:
            return Caller(check_tenant(tenant or DEFAULT_TENANT), checked_name("agent", named or _UNNAMED))
        except ConfigError as error:
            raise HTTPException(400, str(error)) from None
    given = headers.get(_TOKEN) or (headers.get("authorization", "").removeprefix("Bearer ") if bearer else "")
    caller = tokens.get(_hashed(given))
    if caller is None:
        raise HTTPException(401, "give a token in Fleetlore-Token", {"www-authenticate": "Bearer"})
    if named not in ("", caller.agent) or tenant not in ("", caller.tenant):
        raise HTTPException(403, f"the token is of agent {caller.agent} of tenant {caller.tenant}")
    return caller


def _hashed(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def events_of(headers: Mapping[str, str], body: bytes, caller: Caller, now: float) -> list[Event]:
    try:
        found = read_json(body)
    except msgspec.DecodeError as error:
        raise InvalidEvent("not_json", str(error)) from None
    if f"{_HEADER}specversion" in headers:
        attributes = {
            name.removeprefix(_HEADER): unquote(value) for name, value in headers.items() if name.startswith(_HEADER)
        }
        found = of_headers(attributes) | {"data": found}
    return [_event(each, caller, now) for each in (found if isinstance(found, list) else [found])]


def _event(raw: Any, caller: Caller, now: float) -> Event:
    if not isinstance(raw, dict):
        raise InvalidEvent("wrong_shape", f"an event is a JSON object, not {type(raw).__name__}")
    whole: dict[str, Any] = {"agent": caller.agent, "time": datetime.fromtimestamp(now, UTC).isoformat(), "sequence": 0}
    whole |= {name: value for name, value in raw.items() if value is not None}
    found = incoming(whole, caller.tenant, latest_from(now))
    if caller.sure and found.agent != caller.agent:
        raise InvalidEvent("foreign_agent", f"the token is of agent {caller.agent}, the event of {found.agent}")
    sequence = NUMBERLESS if raw.get("sequence") is None else found.sequence
    time = found.time.timestamp()
    return Event(KINDS[found.type], caller.tenant, found.agent, found.session, sequence, time, whole["data"])
