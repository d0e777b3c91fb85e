"""Read a request: its tenant, its form, the words it searches for, and the page of a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["ROWS_PER_PAGE", "TENANT_COOKIE", "Tenants", "choice", "form", "holds", "slice_of", "words"]

ROWS_PER_PAGE = 100
TENANT_COOKIE = "fleetlore_tenant"
_MAX_FORM_BYTES, _MAX_FIELDS = 16_384, 256


async def form(request: Request, tenant: str) -> dict[str, list[str]]:
    """Return the values of each field.

    Raises HTTPException: it is too long (413), malformed (400), or of another tenant's page in an older tab (409).
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_FORM_BYTES:
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


def words(request: Request) -> list[str]:
    return request.query_params.get("q", "").casefold().split()


def holds(words: list[str], *texts: str) -> bool:
    text = "\n".join(texts).casefold() if words else ""
    return all(word in text for word in words)


def choice(request: Request, name: str, values: Mapping[str, str]) -> str:
    given = request.query_params.get(name, "")
    return given if given in values else next(iter(values))


def slice_of(request: Request, found: Sequence[Any], **params: str) -> dict[str, Any]:
    page = request.query_params.get("page", "1")
    number = max(min(int(page), 1_000_000) if page.isascii() and page.isdigit() and len(page) < 8 else 1, 1)
    query = request.query_params.get("q", "")
    return {
        "rows": found[(number - 1) * ROWS_PER_PAGE : number * ROWS_PER_PAGE],
        "total": len(found),
        "page": number,
        "pages": -(-len(found) // ROWS_PER_PAGE),
        "query": query,
        "params": {"q": query, **params},
    }


class Tenants:
    """An application. `apps`: that of each tenant, the first one for browsers that have not chosen."""

    def __init__(self, apps: Mapping[str, ASGIApp]) -> None:
        self._apps = apps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chosen = Request(scope).cookies.get(TENANT_COOKIE, "") if scope["type"] == "http" else ""
        app = self._apps.get(chosen) or next(iter(self._apps.values()))
        await app(scope, receive, send)
