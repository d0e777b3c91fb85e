"""Serve the page: six live blocks, and a page for each item that a row names."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from fleetlore.adapters.listing import Listed
from fleetlore.cli.shared import moment, safe, safe_lines
from fleetlore.errors import FleetloreError
from fleetlore.wire.lore import MAX_WHY, PATTERN_LEVELS, Decision
from fleetlore.wire.stats import Window, failed_of, figure, health, tools_of
from fleetlore.words import count
from models.uplift import Uplift, uplift
from streams.console import blocks
from streams.console.actions import Actions, HintPages
from streams.console.requests import (
    LIVE,
    ROWS_PER_PAGE,
    TENANT_COOKIE,
    People,
    Sorts,
    access,
    choice,
    form,
    listed,
    who,
)
from streams.console.sessions import HintNames, SeenSession, agents_of, explained, trials_of
from streams.console.sources import EVERY_SECONDS, Snapshot, Sources

__all__ = ["Console"]

_FOLDER = Path(__file__).parent
_BLOCKS = ("alive", "breaks", "learned", "helped", "versions", "refused")
_DOTS = re.compile(r"\.{1,2}/*")
_EVERY_SECONDS = 1.0
_HEARD_SECONDS = 3.0
_RANGES = {"day": "the last day", "hour": "the last hour", "week": "the last week", "all": "all that is kept"}
_RANGE_SECONDS = {"hour": 3_600.0, "day": 86_400.0, "week": 7 * 86_400.0, "all": inf}
_LATELY = {"hour": _RANGES["hour"], **_RANGES}
# The orders of lists. Sorting is stable, so equal rows keep their source's order.
_MOST_FAILED = "most failed calls", lambda each: -each.failed
_MOST_CALLS = "most calls", lambda each: -each.calls
_SESSION_SORTS: Sorts = {"newest": ("newest first", None), "failed": _MOST_FAILED, "calls": _MOST_CALLS}
_AGENT_SORTS: Sorts = {
    "newest": ("newest first", lambda each: -each.ended),
    "failed": _MOST_FAILED,
    "name": ("name", None),
}
_TOOL_SORTS: Sorts = {
    "failed": ("surest to fail", None),
    "most": ("most failed calls", lambda each: -each.failures),
    "calls": _MOST_CALLS,
    "name": ("name", lambda each: each.tool),
}
_WINDOWS = {"hour": Window("hours", 1), "day": Window("hours", 24), "week": Window("days", 7)}


class Console:
    """`actions`: None if it is read-only. `tenants`: those to choose from, if there are several."""

    def __init__(
        self, source: Sources, people: People, actions: Actions | None = None, tenants: Sequence[str] = ()
    ) -> None:
        self._source = source
        self._tenants = tenants
        self._actions = actions
        self._templates = Environment(
            loader=FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(safe_line=safe, safe_lines=safe_lines, moment=_moment)
        self._templates.filters.update(counted=count, segment=_segment)
        self._templates.globals.update(rows_of_a_block=blocks.ROWS, offered=self._offered, deciding=deciding)
        self._templates.globals.update(tenants=tenants, figure=figure, failed_of=failed_of, who=who)
        # Sessions, until when their effect is kept, and the effect.
        self._helped: tuple[Sequence[SeenSession], float, Uplift | None] = (), 0.0, None
        hints = HintPages(source, self._page, actions, self._heard)
        self.app = Starlette(
            routes=[
                Route("/", self._overview),
                Route("/live", self._live),
                Route(LIVE, self._alive),
                Route("/changes", self._changed),
                Route("/tenant/{name}", self._choose_tenant),
                Route("/tools", self._tools),
                Route("/patterns", self._patterns),
                Route("/patterns/{id}", self._pattern),
                Route("/items", self._items),
                Route("/items/{id}", self._item),
                Route("/sessions", self._sessions),
                Route("/sessions/{id:path}", self._session),
                Route("/versions/{adapter}/{version}", self._version),
                Route("/agents", self._agents),
                Route("/agents/{id:path}", self._agent),
                Route("/decisions", self._decisions),
                Route("/history", self._history),
                *hints.routes,
                Route("/decide/{action}", self._decide, methods=["GET", "POST"]),
                Mount("/static", StaticFiles(directory=_FOLDER / "static")),
            ],
            middleware=[Middleware(BaseHTTPMiddleware, dispatch=access(people))],
            exception_handlers={HTTPException: self._error, FleetloreError: self._error},
        )

    def _page(self, name: str, snapshot: Snapshot, status: int = 200, **values: Any) -> HTMLResponse:
        page = self._templates.get_template(f"{name}.html")
        return HTMLResponse(page.render(snapshot=snapshot, **values), status)

    async def _error(self, request: Request, error: Exception) -> Response:
        status, text = (error.status_code, error.detail) if isinstance(error, HTTPException) else (503, str(error))
        return self._page("error", self._source.snapshot(), status, text=text)

    def _blocks(self) -> dict[str, str]:
        snapshot = self._source.snapshot()
        values = {
            "snapshot": snapshot,
            "figures": snapshot.figures,
            "rates": blocks.points(snapshot.figures.rates, EVERY_SECONDS),
            "failing": blocks.failing(snapshot),
            "learned": blocks.learned(snapshot),
            "helped": self._effect(snapshot),
            "versions": blocks.versions(snapshot),
            "refused": blocks.refused(snapshot),
        }
        return {name: self._templates.get_template(f"block_{name}.html").render(values) for name in _BLOCKS}

    def _effect(self, snapshot: Snapshot) -> Uplift:
        sessions, until, effect = self._helped
        if effect is None or (sessions is not snapshot.sessions and snapshot.now >= until):
            effect = uplift(trials_of(snapshot.sessions), len(snapshot.sessions))
            self._helped = snapshot.sessions, snapshot.now + len(snapshot.sessions) // 1_000, effect
        return effect

    async def _overview(self, request: Request) -> Response:
        return self._page("overview", self._source.snapshot(), blocks=self._blocks())

    async def _alive(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _live(self, request: Request) -> Response:
        return StreamingResponse(self._changes(), media_type="text/event-stream")

    async def _changes(self) -> AsyncIterator[bytes]:
        sent: dict[str, str] = {}
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                now = self._blocks()
                changed = {name: html for name, html in now.items() if sent.get(name) != html}
                sent = now
                yield b"data: " + orjson.dumps(changed) + b"\n\n" if changed else b":\n\n"
                await asyncio.sleep(_EVERY_SECONDS)

    async def _changed(self, request: Request) -> Response:
        snapshot = self._source.snapshot()
        found = blocks.changes(snapshot, snapshot.now - _RANGE_SECONDS[choice(request, "since", _LATELY)])
        shown = listed(request, found, lambda each: (each.kind, each.text), ranges=_LATELY)
        return self._page("changes", snapshot, **shown)

    async def _tools(self, request: Request) -> Response:
        snapshot = self._source.snapshot()
        rows = health(snapshot.index.patterns.values(), "tool", _WINDOWS.get(choice(request, "since", _RANGES)))
        return self._page(
            "tools", snapshot, **listed(request, rows, lambda each: (each.tool,), ranges=_RANGES, sorts=_TOOL_SORTS)
        )

    async def _choose_tenant(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._tenants:
            raise HTTPException(404, f"this console shows no tenant {name!r}")
        response = RedirectResponse("/", 303)
        response.set_cookie(TENANT_COOKIE, name, httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return response

    async def _patterns(self, request: Request) -> Response:
        snapshot = self._source.snapshot()
        found = [each for each in snapshot.index.patterns.values() if each.level == "class"]
        found.sort(key=lambda each: (-each.failures, each.id))
        shown = listed(request, found, lambda each: (each.tool, each.error_class, each.template))
        return self._page("patterns", snapshot, tools=tools_of(snapshot.index.patterns.values()), **shown)

    async def _items(self, request: Request) -> Response:
        snapshot = self._source.snapshot()
        found = sorted(snapshot.index.items.values(), key=lambda each: (-each.standing(), each.id))
        shown = listed(request, found, lambda each: (each.title, each.content, each.tool, each.task))
        return self._page("items", snapshot, **shown)

    async def _sessions(self, request: Request) -> Response:
        snapshot = self._source.snapshot()
        found = _since(request, snapshot)

        def texts(each: SeenSession) -> tuple[str, ...]:
            return each.id, each.agent, each.task, each.goal, each.label

        return self._page("sessions", snapshot, **listed(request, found, texts, ranges=_RANGES, sorts=_SESSION_SORTS))

    async def _agents(self, request: Request) -> Response:
        snapshot = self._source.snapshot()
        found = agents_of(_since(request, snapshot))
        return self._page(
            "agents", snapshot, **listed(request, found, lambda each: (each.name,), ranges=_RANGES, sorts=_AGENT_SORTS)
        )

    async def _pattern(self, request: Request) -> Response:
        snapshot = self._source.snapshot()
        pattern = _known(snapshot.index.patterns, request, "pattern")
        finer = [each for each in snapshot.index.patterns.values() if each.parent == pattern.id]
        finer.sort(key=lambda each: (-each.failures, each.id))
        items = [each for each in snapshot.index.items.values() if each.pattern == pattern.id]
        items.sort(key=lambda each: (-each.standing(), each.id))
        tool = tools_of(snapshot.index.patterns.values()).get(pattern.tool)
        coarser = snapshot.index.patterns.get(pattern.parent or "")
        hint = blocks.hint(snapshot, pattern) if pattern.level in PATTERN_LEVELS else ""
        return self._page("pattern", snapshot, pattern=pattern, tool=tool, coarser=coarser, finer=finer[:ROWS_PER_PAGE],
                          items=items, hint=hint)  # fmt: skip

    async def _item(self, request: Request) -> Response:
        snapshot = self._source.snapshot()
        item = _known(snapshot.index.known_items, request, "item")
        return self._page("item", snapshot, item=item, pattern=snapshot.index.patterns.get(item.pattern or ""))

    async def _session(self, request: Request) -> Response:
        id = _named_in(request)
        if not (found := await self._source.sessions_named(id)):
            raise HTTPException(404, f"no judged session {id!r} is in the store")
        (session, state), snapshot = found[0], self._source.snapshot()
        hints = list(explained(session, HintNames(snapshot.index)))
        return self._page("session", snapshot, session=session, votes=state.said, taught=state.taught,
                          known=snapshot.index.items, hints=hints)  # fmt: skip

    async def _version(self, request: Request) -> Response:
        snapshot = self._source.snapshot()
        shown = _published(snapshot, request.path_params["adapter"], request.path_params["version"])
        acks = [each for each in snapshot.adapters.acks if each.get("version") == shown.version]
        return self._page("version", snapshot, shown=shown, acks=acks, published=_names_of_versions(snapshot))

    async def _agent(self, request: Request) -> Response:
        snapshot, agent = self._source.snapshot(), _named_in(request)
        acks = [each for each in snapshot.adapters.acks if each.get("agent") == agent]
        sessions = await self._source.sessions_of(agent)
        decided = snapshot.decisions.get(f"agent/{agent}")
        if not acks and not sessions and decided is None:
            raise HTTPException(404, f"no session or version of an agent {agent!r} is known")
        return self._page("agent", snapshot, agent=agent, acks=acks, sessions=sessions, decided=decided,
                          published=_names_of_versions(snapshot))  # fmt: skip

    def _offered(self, kind: str) -> Mapping[str, str]:
        return {} if self._actions is None or not who().is_operator else self._actions.offered(kind)

    async def _decisions(self, request: Request) -> Response:
        snapshot = self._source.snapshot()
        found = sorted(snapshot.decisions.values(), key=lambda each: (-each.time, each.key))
        progress = {} if self._actions is None else self._actions.progress
        return self._page("decisions", snapshot, progress=progress, **listed(request, found))

    async def _history(self, request: Request) -> Response:
        snapshot = self._source.snapshot()
        shown = listed(request, snapshot.history, lambda each: (each.kind, each.id, each.by, each.why))
        return self._page("history", snapshot, **shown)

    async def _decide(self, request: Request) -> Response:
        action, kind = request.path_params["action"], request.query_params.get("kind", "")
        id = request.query_params.get("id", "")
        if self._actions is None or action not in self._offered(kind) or not id:
            raise HTTPException(404, f"{action!r} cannot be done here")
        snapshot = self._source.snapshot()
        title, back = self._named(snapshot, kind, id)
        if request.method == "GET":
            what = self._offered(kind)[action]
            return self._page("confirm", snapshot, action=action, kind=kind, id=id, title=title, what=what, back=back,
                              max_why=MAX_WHY)  # fmt: skip
        why = " ".join((await form(request, snapshot.tenant)).get("why", [])).strip()
        if not 0 < len(why) <= MAX_WHY:
            raise HTTPException(400, f"say why, in at most {MAX_WHY} characters")
        before = snapshot.decisions.get(f"{kind}/{id}")
        await self._actions.decide(action, kind, id, by=who().name, why=why, before=before)
        if back.startswith("/versions/"):
            return RedirectResponse(back, 303)
        await self._heard(f"{kind}/{id}", before)
        return RedirectResponse("/decisions", 303)

    async def _heard(self, key: str, before: Decision | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HEARD_SECONDS):
                while self._source.snapshot().decisions.get(key) == before:
                    await asyncio.sleep(_HEARD_SECONDS / 100)

    def _named(self, snapshot: Snapshot, kind: str, id: str) -> tuple[str, str]:
        if kind == "agent":
            return id, f"/agents/{_segment(id)}"
        if kind in ("item", "pattern"):
            entries: Mapping[str, Any] = snapshot.index.known_items if kind == "item" else snapshot.index.patterns
            if id in entries:
                entry = entries[id]
                return (entry.title if kind == "item" else f"{entry.tool}: {entry.error_class}"), f"/{kind}s/{id}"
            if f"{kind}/{id}" in snapshot.decisions:
                return id, "/decisions"
            raise HTTPException(404, f"no {kind} {id!r} is known; it may have been forgotten")
        shown = _published(snapshot, kind, id)
        return f"{kind} {shown.ordinal}", f"/versions/{quote(kind)}/{quote(id)}"


def _moment(seconds: float) -> str:
    shown = moment(seconds)
    if shown == "-":
        return shown
    return Markup('<time datetime="{}Z">{} UTC</time>').format(shown.replace(" ", "T"), shown)


def _segment(name: str) -> str:
    return quote(f"{name}/" if _DOTS.fullmatch(name) else name, safe="")


def _named_in(request: Request) -> str:
    name: str = request.path_params["id"]
    return name.removesuffix("/") if _DOTS.fullmatch(name) else name


def deciding(action: str, kind: str, id: str) -> str:
    return f"/decide/{action}?{urlencode({'kind': kind, 'id': id})}"


def _known(entries: Mapping[str, Any], request: Request, what: str) -> Any:
    id = request.path_params["id"]
    if id not in entries:
        raise HTTPException(404, f"agents have no {what} {id!r}; it may be revoked (see Decisions) or forgotten")
    return entries[id]


def _published(snapshot: Snapshot, adapter: str, version: str) -> Listed:
    for each in blocks.versions(snapshot):
        if (each.adapter, each.version) == (adapter, version):
            return each
    raise HTTPException(404, f"no version {version!r} of {adapter!r} is published")


def _since(request: Request, snapshot: Snapshot) -> list[SeenSession]:
    seconds = _RANGE_SECONDS[choice(request, "since", _RANGES)]
    return [each for each in snapshot.sessions if each.ended >= snapshot.now - seconds]


def _names_of_versions(snapshot: Snapshot) -> set[tuple[str, str]]:
    return {(each.adapter, each.version) for each in blocks.versions(snapshot)}
