"""Recognise loopback addresses, and serve no page of a browser on them."""

import ipaddress
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import urlsplit

__all__ = ["hostname", "is_loopback", "past_proxies", "without_pages"]

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
    """Return the variables that spare this machine the proxies in `environ`."""
    named = [environ.get(name, "") for name in ("no_proxy", "NO_PROXY")]
    spared = [host for each in named for host in each.split(",") if host.strip()]
    if "*" not in spared:
        spared = list(dict.fromkeys([*spared, "localhost", "127.0.0.1", "::1"]))
    return dict.fromkeys(("no_proxy", "NO_PROXY"), "*" if "*" in spared else ",".join(spared))


def without_pages(app: Application) -> Application:
    """Serve an application only to programs and to pages of this machine.

    Another page's requests would become lore, and its streams use up the connections. A browser names the page in
    `Origin`, or for a GET of an image or frame tells of another site in `Sec-Fetch-Site`. `Host` must be a loopback
    address, against DNS rebinding.
    """

    async def guarded(scope: Message, receive: Receive, send: Send) -> None:
        def named(wanted: bytes) -> list[str]:
            return [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == wanted]

        origins = named(b"origin")
        pages = [origin for origin in origins if not is_loopback(hostname(origin.partition("://")[2]))]
        if not origins and "cross-site" in map(str.lower, named(b"sec-fetch-site")):
            pages = ["another site"]
        if pages or not all(is_loopback(hostname(host)) for host in named(b"host")):
            status, why = (403, f"a page of {pages[0]} may not send here") if pages else (421, "use 127.0.0.1 as host")
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": why.encode()})
            return
        await app(scope, receive, send)

    return guarded
