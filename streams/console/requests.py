"""Read a request: who sends it, its tenant, its form, and the part of a list that it asks for.

A proxy that authenticates or a token names the person, never the form. On loopback without either, every local user is
an operator. An action must come from the page itself, so that another page in the same browser cannot send it.
"""

import getpass
import hmac
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.limits import bounded
from fleetlore.loopback import is_loopback
from fleetlore.relay.callers import in_utf8

__all__ = ["People", "Tenants"]

ROWS_PER_PAGE = 100
TENANT_COOKIE = "fleetlore_tenant"
_MAX_FORM_BYTES, _MAX_FIELDS = 16_384, 256
# Each word is sought in every row.
_MAX_QUERY = 200
# Each order's label and key. Without a key, rows keep their order.
Sorts = Mapping[str, tuple[str, Callable[[Any], Any] | None]]


async def form(request: Request, tenant: str) -> dict[str, list[str]]:
    """Return the values of each field. Raises HTTPException: 413 too long, 400 malformed, 409 of another tenant."""
    if (body := await bounded(request.stream(), _MAX_FORM_BYTES)) is None:
        raise HTTPException(413, "the form is too long")
    try:
        given = parse_qs(body.decode(), max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise HTTPException(400, "the form cannot be read") from None
    for name in given.get("tenant", []):
        if name != tenant:
            raise HTTPException(
                409, f"nothing was decided: the form is of tenant {name!r}, and the console shows {tenant!r}"
            )
    return given


def choice(request: Request, name: str, values: Mapping[str, str]) -> str:
    given = request.query_params.get(name, "")
    return given if given in values else next(iter(values))


def listed(
    request: Request,
    rows: Iterable[Any],
    texts: Callable[[Any], Sequence[str]] | None = None,
    *,
    ranges: Mapping[str, str] | None = None,
    sorts: Sorts | None = None,
) -> dict[str, Any]:
    """Return what the template of a list needs: the rows that hold the searched words, in the chosen order.

    `texts`: the texts of a row that are searched. `ranges`, `sorts`: choices of the parameters `since` and `sort`.
    """
    query = request.query_params.get("q", "")[:_MAX_QUERY]
    wanted = query.casefold().split() if texts is not None else []
    found = [each for each in rows if not wanted or texts is None or _holds(wanted, texts(each))]
    values, params = dict[str, Any](), {"q": query}
    if ranges is not None:
        values["ranges"], params["since"] = ranges, choice(request, "since", ranges)
    if sorts is not None:
        values["sorts"] = {name: label for name, (label, _) in sorts.items()}
        params["sort"] = choice(request, "sort", values["sorts"])
        if (key := sorts[params["sort"]][1]) is not None:
            found.sort(key=key)
    page, pages = request.query_params.get("page", "1"), -(-len(found) // ROWS_PER_PAGE)
    number = max(min(int(page), pages) if page.isascii() and page.isdigit() and len(page) < 8 else 1, 1)
    shown = found[(number - 1) * ROWS_PER_PAGE : number * ROWS_PER_PAGE]
    values |= {"rows": shown, "total": len(found), "page": number, "pages": pages}
    return values | {"query": query, "params": params}


def _holds(words: Sequence[str], texts: Sequence[str]) -> bool:
    text = "\n".join(texts).casefold()
    return all(word in text for word in words)


class Tenants:
    """`apps`: by tenant, the first for browsers that have not chosen."""

    def __init__(self, apps: Mapping[str, ASGIApp]) -> None:
        self._apps = apps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chosen = Request(scope).cookies.get(TENANT_COOKIE, "") if scope["type"] == "http" else ""
        app = self._apps.get(chosen) or next(iter(self._apps.values()))
        await app(scope, receive, send)


_COOKIE = "fleetlore_console"
_USER = "x-forwarded-user"
_NAME = re.compile(r"[^\x00-\x20\x7f](?:[^\x00-\x1f\x7f]{0,98}[^\x00-\x20\x7f])?")
_LEAST_TOKEN = 6
# A probe has neither token nor host name, and learns only that the page answers.
LIVE = "/livez"
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_HEADERS = {
    # Load only the page's own files, because it shows agents' texts.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Under `no-referrer`, browsers send `Origin: null` even from the page's own forms.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_Handler = Callable[[Request], Awaitable[Response]]


class Identity(NamedTuple):
    name: str
    is_operator: bool


_NOBODY = Identity("", is_operator=False)
_WHO: ContextVar[Identity] = ContextVar("who", default=_NOBODY)


def who() -> Identity:
    return _WHO.get()


@dataclass(frozen=True, slots=True)
class People:
    """Known persons. `local`: every user of this machine, on loopback without proxies and tokens."""

    tokens: tuple[tuple[str, Identity], ...] = ()
    proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    operators: frozenset[str] = frozenset()
    local: Identity | None = None

    @classmethod
    def of(cls, settings: Settings, host: str, made: str) -> Self:
        """Read the settings for a page on `host`. `made`: a viewer's token, if none is set. Raises ConfigError."""
        try:
            proxies = tuple(ip_network(each) for each in settings.console_proxies)
        except ValueError as error:
            raise ConfigError(f"FLEETLORE_CONSOLE_PROXIES: {error}") from None
        given = [each.strip() for each in settings.console_token.split(",") if each.strip()]
        tokens = tuple(_identity(each) for each in given)
        is_local = is_loopback(host) and not proxies and not tokens
        if not is_local and not proxies and not tokens:
            tokens = ((made, Identity("viewer", is_operator=False)),)
        local = Identity(_user(), is_operator=True) if is_local else None
        return cls(tokens, proxies, frozenset(settings.console_operators), local)

    def by_token(self, given: str) -> Identity | None:
        found = [identity for token, identity in self.tokens if hmac.compare_digest(given.encode(), token.encode())]
        return found[0] if found else None

    def is_proxy(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:  # a Unix socket has none
            return False
        return any(address in network for network in self.proxies)


def _identity(entry: str) -> tuple[str, Identity]:
    name, role, token = entry.split(":", 2) if entry.count(":") >= 2 else ("viewer", "viewer", entry)
    if role not in ("viewer", "operator") or not _NAME.fullmatch(name) or len(token) < _LEAST_TOKEN:
        raise ConfigError(
            f"FLEETLORE_CONSOLE_TOKEN: {name}:{role}:… is no NAME:viewer:TOKEN or NAME:operator:TOKEN with a token of "
            f"at least {_LEAST_TOKEN} characters"
        )
    return token, Identity(name, role == "operator")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "local user"


def access(people: People) -> Callable[[Request, _Handler], Awaitable[Response]]:
    """Return middleware that refuses requests without access, and sets `who` for the others."""

    async def answered(request: Request, answer: _Handler) -> Response:
        _WHO.set(_NOBODY)
        response = _refusal(people, request) or await answer(request)
        response.headers.update({name: value for name, value in _HEADERS.items() if name not in response.headers})
        return response

    return answered


def _refusal(people: People, request: Request) -> Response | None:
    if request.url.path == LIVE:
        return None
    host = request.url.hostname or ""
    if people.local is not None and not is_loopback(host):
        # A foreign name for this address (DNS rebinding) would count as the page's own.
        return PlainTextResponse(f"this page is not served as {host!r}", 421)
    if request.method not in _SAFE_METHODS:
        origin = request.headers.get("origin", "")
        if origin.partition("://")[1:] != ("://", request.headers.get("host")):
            return PlainTextResponse("an action has to come from the page itself", 403)
    given = request.query_params.get("token")
    if given is not None and request.method == "GET" and people.by_token(given) is not None:
        # A browser reads `//NAME` as another host.
        response = RedirectResponse(f"/{request.url.path.lstrip('/')}", 303)
        # A proxy before this page may speak TLS for it.
        secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
        response.set_cookie(_COOKIE, given, httponly=True, samesite="strict", secure=secure)
        return response
    identity = _identity_of(people, request)
    if identity is None:
        return PlainTextResponse(
            "open the address that `fleetlore console` printed, with your token, or come through the proxy that "
            "says who you are (X-Forwarded-User)",
            401,
        )
    _WHO.set(identity)
    return None


def _identity_of(people: People, request: Request) -> Identity | None:
    if request.client is not None and people.is_proxy(request.client.host):
        name = in_utf8(request.headers, _USER)
        if len(request.headers.getlist(_USER)) != 1 or not _NAME.fullmatch(name):
            return None
        return Identity(name, name in people.operators)
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    return people.by_token(bearer) or people.by_token(request.cookies.get(_COOKIE, "")) or people.local
