"""Serve this machine's programs and not the pages in its browser: any page may send to a loopback address, and what it
sent would become lore of the fleet.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["is_loopback", "without_pages"]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def without_pages(app: ASGIApp) -> ASGIApp:
    """The application, for requests of programs and of pages that this machine serves itself.

    A browser says with every POST where its page comes from, whatever name led it here (DNS rebinding).
    """

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        origin = Headers(scope=scope).get("origin") if scope["type"] == "http" else None
        if origin is not None and not is_loopback(urlsplit(origin).hostname or ""):
            refusal = PlainTextResponse(f"a page of {origin} may not send here", 403)
            return await refusal(scope, receive, send)
        await app(scope, receive, send)

    return guarded
