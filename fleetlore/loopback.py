"""Tell loopback addresses from others: no proxy stands before them, and no page in a browser may send to them."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import urlsplit

__all__ = ["is_loopback", "past_proxies", "without_pages"]

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


def past_proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a process reaches this machine directly, whatever proxy `environ` names.

    An office sets `http_proxy` for all programs; gRPC, httpx and urllib would ask it for 127.0.0.1.
    """
    named = [environ.get(name, "") for name in ("no_proxy", "NO_PROXY")]
    spared = [host for each in named for host in each.split(",") if host.strip()]
    if "*" not in spared:
        spared = list(dict.fromkeys([*spared, "localhost", "127.0.0.1", "::1"]))
    return dict.fromkeys(("no_proxy", "NO_PROXY"), "*" if "*" in spared else ",".join(spared))


def without_pages(app: Application) -> Application:
    """The application, for requests of programs and of pages that this machine serves itself.

    Any page may send to a loopback address, and what it sent would become lore of the fleet.
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
