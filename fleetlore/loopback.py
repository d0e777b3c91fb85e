"""Serve this machine's programs and not the pages in its browser: any page may send to a loopback address, and what it
sent would become lore of the fleet.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

__all__ = ["is_loopback", "without_pages"]

# As ASGI has them.
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def without_pages(app: Application) -> Application:
    """The application, for requests of programs and of pages that this machine serves itself.

    A browser says with every POST where its page comes from, whatever name led it here (DNS rebinding).
    """

    async def guarded(scope: Message, receive: Receive, send: Send) -> None:
        origin = dict(scope["headers"]).get(b"origin") if scope["type"] == "http" else None
        if origin is not None and not is_loopback(urlsplit(origin.decode("latin-1")).hostname or ""):
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"a page of " + origin + b" may not send here"})
            return
        await app(scope, receive, send)

    return guarded
