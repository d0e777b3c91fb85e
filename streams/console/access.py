"""Decide who may see the page and who may act on it.

On a loopback address everybody on the machine may; elsewhere a token is asked for, once, and kept in a cookie. An
action needs besides that its request comes from the page itself: another page in the same browser must not be able to
send it.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from fleetlore.loopback import is_loopback

_COOKIE = "fleetlore_console"
# A probe knows neither the token nor the name, and learns nothing but that the page answers.
LIVE = "/livez"
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_HEADERS = {
    # Nothing but the page's own files: texts of others are on it.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Under `no-referrer` a browser says of the page's own forms too that they come from nowhere (`Origin: null`).
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_Handler = Callable[[Request], Awaitable[Response]]


class Access:
    """Args: token: that is asked for; None on a loopback address."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    async def __call__(self, request: Request, answer: _Handler) -> Response:
        """A middleware: answers itself where the request may not pass."""
        response = self._refusal(request) or await answer(request)
        response.headers.update({name: value for name, value in _HEADERS.items() if name not in response.headers})
        return response

    def _refusal(self, request: Request) -> Response | None:
        if request.url.path == LIVE:
            return None
        host = request.url.hostname or ""
        if self._token is None and not is_loopback(host):
            # A name that somebody else's server gives this address (DNS rebinding) would pass for the page's own.
            return PlainTextResponse(f"this page is not served as {host!r}", 421)
        if request.method not in _SAFE_METHODS and not self._is_own(request):
            return PlainTextResponse("an action has to come from the page itself", 403)
        if self._token is None:
            return None
        given = request.query_params.get("token")
        if given is not None and request.method == "GET" and self._matches(given):
            # The address holds the token no longer than it must.
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
