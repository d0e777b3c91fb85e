"""Open connections to the servers that requests of several callers are forwarded to."""

from __future__ import annotations

from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx2

__all__ = ["upstream_client"]


def upstream_client(**options: Any) -> httpx2.AsyncClient:
    """Return a client without a cookie jar: a cookie that answers one caller must not go with another's request."""
    return httpx2.AsyncClient(cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())), **options)
