"""Decide who may see the page and who may act on it.

On loopback, every local user may. Elsewhere the page requires a token once and keeps it in a cookie. An action must
also come from the page itself, so that another page in the same browser cannot send it.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from fleetlore.loopback import is_loopback

_COOKIE = "fleetlore_console"
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


class Access:
    """Args: token: the required token; None on loopback."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    async def __call__(self, request: Request, answer: _Handler) -> Response:
        """Middleware that refuses requests without access."""
        response = self._refusal(request) or await answer(request)
        response.headers.update({name: value for name, value in _HEADERS.items() if name not in response.headers})
        return response

    def _refusal(self, request: Request) -> Response | None:
        if request.url.path == LIVE:
            return None
        host = request.url.hostname or ""
        if self._token is None and not is_loopback(host):
            # A foreign name that resolves to this address (DNS rebinding) would count as the page's own.
            return PlainTextResponse(f"this page is not served as {host!r}", 421)
        if request.method not in _SAFE_METHODS and not self._is_own(request):
            return PlainTextResponse("an action has to come from the page itself", 403)
        if self._token is None:
            return None
        given = request.query_params.get("token")
        if given is not None and request.method == "GET" and self._matches(given):
            response = RedirectResponse(request.url.path, 303)
            response.set_cookie(_COOKIE, given, httponly=True, samesite="strict", secure=request.url.scheme == "https")
            return response
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._matches(bearer) or self._matches(request.cookies.get(_COOKIE, "")):
            return None
        return PlainTextResponse("open the address that `fleetlore console` printed, with its token", 401)

    def _matches(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())

    @staticmethod
    def _is_own(request: Request) -> bool:
        origin = request.headers.get("origin")
        return origin is not None and urlsplit(origin).netloc == request.headers.get("host")
