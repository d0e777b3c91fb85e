"""Tell callers apart: by token, or on loopback by what they call themselves."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request

from fleetlore.errors import ConfigError
from fleetlore.tenants import DEFAULT_TENANT, check_tenant
from fleetlore.wire.events import checked_name

__all__ = ["AGENT", "OWN_HEADERS", "Caller", "caller_of", "read_tokens"]

AGENT, TENANT, _TOKEN = "fleetlore-agent", "fleetlore-tenant", "fleetlore-token"
# Of requests to the gateway, none of which goes on to the provider.
OWN_HEADERS = "fleetlore-"
_LEAST_TOKEN = 16
_UNNAMED = "agent"


class Caller(NamedTuple):
    """Who asks; `sure` where a token says so."""

    tenant: str
    agent: str
    sure: bool = False


# By sha256 of the token: how long a look-up takes says nothing of the tokens.
Tokens = Mapping[bytes, Caller]


def read_tokens(path: Path) -> Tokens:
    """Callers by token, of a file with a line each: token, agent, and the tenant where it is not `default`.

    Raises:
        ConfigError: it cannot be read, or a line is malformed.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the tokens in {path} cannot be read: {error}") from None
    tokens: dict[bytes, Caller] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if not 2 <= len(words) <= 3 or len(words[0]) < _LEAST_TOKEN:
            wanted = f"a token of at least {_LEAST_TOKEN} characters, an agent and at most a tenant"
            raise ConfigError(f"{path}, line {number}: give {wanted}")
        key = _hashed(words[0])
        if key in tokens:
            raise ConfigError(f"{path}, line {number}: the token stands there twice; each is one agent's")
        tenant = check_tenant(words[2] if len(words) == 3 else DEFAULT_TENANT)
        tokens[key] = Caller(tenant, checked_name("agent", words[1]), sure=True)
    if not tokens:
        raise ConfigError(f"{path} holds no token")
    return tokens


def caller_of(request: Request, tokens: Tokens | None, *, bearer: bool = True) -> Caller:
    """Who sent a request.

    Args:
        bearer: whether the token may stand in `Authorization` too; at the gateway the provider's key stands there.

    Raises:
        HTTPException: 401 without a known token, 403 where it is another agent's or tenant's, 400 for a name that is
            none.
    """
    headers = request.headers
    named, tenant = request.path_params.get("agent") or headers.get(AGENT, ""), headers.get(TENANT, "")
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
