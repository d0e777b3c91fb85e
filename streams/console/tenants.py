"""Serve the pages of several tenants. A cookie says which one a browser looks at."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from streams.console.pages import TENANT_COOKIE

__all__ = ["Tenants"]


class Tenants:
    """An application. `apps`: that of each tenant, the first one for browsers that have not chosen."""

    def __init__(self, apps: Mapping[str, ASGIApp]) -> None:
        self._apps = apps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chosen = Request(scope).cookies.get(TENANT_COOKIE, "") if scope["type"] == "http" else ""
        app = self._apps.get(chosen) or next(iter(self._apps.values()))
        await app(scope, receive, send)
