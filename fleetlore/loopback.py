"""Tell loopback addresses from others, and serve no page of a browser on them."""

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
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def hostname(netloc: str) -> str:
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""


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
    """Return the application, served to programs and to pages that this machine serves itself.

    Any page may send to a loopback address, and what it sends would become lore of the fleet. A browser names the
    page of every POST in `Origin`. A name that another's server resolves to this machine (DNS rebinding) makes the
    page read answers as its own, so `Host` must be a loopback address on every request.
    """

    async def guarded(scope: Message, receive: Receive, send: Send) -> None:
        headers = scope["headers"] if scope["type"] == "http" else ()
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
        pages = [origin for origin in origins if not is_loopback(hostname(origin.partition("://")[2]))]
        if pages or not all(is_loopback(hostname(host)) for host in hosts):
            status, why = (403, f"a page of {pages[0]} may not send here") if pages else (421, "use 127.0.0.1 as host")
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": why.encode()})
            return
        await app(scope, receive, send)

    return guarded
