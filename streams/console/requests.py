"""Read a request: its tenant, its form, and the part of a list that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["ROWS_PER_PAGE", "TENANT_COOKIE", "Sorts", "Tenants", "choice", "form", "listed"]

ROWS_PER_PAGE = 100
TENANT_COOKIE = "fleetlore_tenant"
_MAX_FORM_BYTES, _MAX_FIELDS = 16_384, 256
# The label and the key of each order of a list. Without a key, rows keep their order.
Sorts = Mapping[str, tuple[str, Callable[[Any], Any] | None]]


async def form(request: Request, tenant: str) -> dict[str, list[str]]:
    """Return the values of each field. Raises HTTPException: 413 too long, 400 malformed, 409 of another tenant."""
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


def choice(request: Request, name: str, values: Mapping[str, str]) -> str:
    given = request.query_params.get(name, "")
    return given if given in values else next(iter(values))


def listed(
    request: Request,
    rows: Iterable[Any],
    texts: Callable[[Any], Sequence[str]] | None = None,
    *,
    ranges: Mapping[str, str] | None = None,
    sorts: Sorts | None = None,
) -> dict[str, Any]:
    """Return what the template of a list needs: the rows that hold the searched words, in the chosen order.

    Args:
        texts: the texts of a row that are searched.
        ranges: choices of the parameter `since`.
        sorts: choices of the parameter `sort`.
    """
    query = request.query_params.get("q", "")
    wanted = query.casefold().split() if texts is not None else []
    found = [each for each in rows if not wanted or texts is None or _holds(wanted, texts(each))]
    values, params = dict[str, Any](), {"q": query}
    if ranges is not None:
        values["ranges"], params["since"] = ranges, choice(request, "since", ranges)
    if sorts is not None:
        values["sorts"] = {name: label for name, (label, _) in sorts.items()}
        params["sort"] = choice(request, "sort", values["sorts"])
        if (key := sorts[params["sort"]][1]) is not None:
            found.sort(key=key)
    page = request.query_params.get("page", "1")
    number = max(min(int(page), 1_000_000) if page.isascii() and page.isdigit() and len(page) < 8 else 1, 1)
    shown, pages = found[(number - 1) * ROWS_PER_PAGE : number * ROWS_PER_PAGE], -(-len(found) // ROWS_PER_PAGE)
    return values | {
        "rows": shown,
        "total": len(found),
        "page": number,
        "pages": pages,
        "query": query,
        "params": params,
    }


def _holds(words: Sequence[str], texts: Sequence[str]) -> bool:
    text = "\n".join(texts).casefold()
    return all(word in text for word in words)


class Tenants:
    """An application. `apps`: that of each tenant, the first one for browsers that have not chosen."""

    def __init__(self, apps: Mapping[str, ASGIApp]) -> None:
        self._apps = apps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chosen = Request(scope).cookies.get(TENANT_COOKIE, "") if scope["type"] == "http" else ""
        app = self._apps.get(chosen) or next(iter(self._apps.values()))
        await app(scope, receive, send)
