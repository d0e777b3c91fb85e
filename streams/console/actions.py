"""Carry out decisions made on the page, and serve the pages of hints and of lessons to approve."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from fleetlore.advice.decide import JUDGMENTS, MAX_TEXT, Draft, Reviews, draft_of, judged, proposed, words_of, write
from fleetlore.config import Settings
from fleetlore.errors import ConfigError, FleetloreError, WordsChanged
from fleetlore.recall.index import when_of
from fleetlore.redact.redact import redact
from fleetlore.wire.adapter_manifest import ADAPTERS
from fleetlore.wire.lore import MAX_WHY, Decision, DecisionKind, MemoryItem
from sinks.adapter_publisher import AdapterPublisher
from streams.console.requests import form, listed, who
from streams.console.sessions import SeenSession
from streams.console.sources import Sources
from streams.offline.operator_word import decide, reconsider

__all__ = ["Actions"]

log = logging.getLogger(__name__)

_DISTRUST_SECONDS = 300.0
_HIDE = {
    "revoke": "Hide it from all agents, whatever is learned later. This can be undone.",
    "show": "Show it to agents again in its current state.",
}
_OF_LORE: Mapping[str, Mapping[str, str]] = {
    "item": _HIDE,
    "pattern": _HIDE,
    "agent": {
        "distrust": "Remove its contributions from everything learned. This can be undone.",
        "trust": "Count its contributions again, old and new.",
    },
}
_OF_VERSIONS = {
    "rollback": "Point the channel to this version; agents swap between two actions.",
    "pin": "Point the channel to this version and keep it there until it is unpinned.",
    "unpin": "Let the trainer move the channel again.",
    "revoke": "Revoke this version for ever; the newest other one replaces it.",
}


class Actions:
    """Decides for one tenant.

    Adapter versions need the signing key. `progress`: state of this page's decisions about agents, by agent.
    """

    def __init__(self, settings: Settings, tenant: str) -> None:
        self._settings = settings
        self._tenant = tenant
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self.progress: dict[str, str] = {}

    def offered(self, kind: str) -> Mapping[str, str]:
        if kind in _OF_LORE:
            return _OF_LORE[kind]
        return _OF_VERSIONS if self._settings.signing_key and any(each.name == kind for each in ADAPTERS) else {}

    async def decide(
        self, action: str, kind: str, id: str, *, by: str, why: str, before: Decision | None = None
    ) -> None:
        """Raises ConfigError: the version does not exist or may not be moved."""
        by, why = redact(by), redact(why)
        log.warning("console: %s decides to %s %s %s of tenant %s: %s", by, action, kind, id, self._tenant, why)
        if kind not in _OF_LORE:
            return await self._move(action, kind, id, why)
        lore = cast(DecisionKind, kind)
        on = action in ("revoke", "distrust")
        approved = "" if before is None else before.wording
        decided = Decision(kind=lore, id=id, on=on, by=by, why=why, time=time.time(), wording=approved)
        if lore != "agent":
            return await decide(self._settings, self._tenant, decided)
        if id in self._under_way:
            self._under_way[id].cancel()
        self._under_way[id] = asyncio.create_task(self._reconsider(decided))

    async def publish(self, decisions: Sequence[Decision]) -> None:
        for decided in decisions:
            log.warning(
                "console: %s decides on %s of tenant %s: %s", decided.by, decided.key, self._tenant, decided.why
            )
        await decide(self._settings, self._tenant, *decisions)

    async def close(self) -> None:
        for task in self._under_way.values():
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def _reconsider(self, decided: Decision) -> None:
        self.progress[decided.id] = "under way"
        try:
            known = await reconsider(self._settings, self._tenant, decided, _DISTRUST_SECONDS)
        except FleetloreError as error:
            log.warning("console: %s is not reconsidered: %s", decided.id, error)
            self.progress[decided.id] = f"not done: {error}"
        else:
            found = f"{len(known.patterns)} patterns and {len(known.items)} items"
            self.progress[decided.id] = f"done: {found} considered again"

    async def _move(self, action: str, adapter: str, version: str, reason: str) -> None:
        (kind,) = (each for each in ADAPTERS if each.name == adapter)
        async with AdapterPublisher.from_settings(kind, self._settings) as publisher:
            if action == "revoke":
                await publisher.revoke(self._tenant, version, reason)
            elif action == "unpin":
                await publisher.unpin(self._tenant, reason)
            else:
                await publisher.rollback(self._tenant, version, reason, pinned=action == "pin")


_WEEK_SECONDS = 7 * 86_400.0
_DAY_SECONDS = 86_400.0
_MOST_AT_ONCE = 100


@dataclass(frozen=True)
class HintPages:
    source: Sources
    page: Callable[..., Response]
    actions: Actions | None
    heard: Callable[[str, Decision | None], Awaitable[None]]

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/hints", self._list),
            Route("/hints/write", self._write, methods=["GET", "POST"]),
            Route("/hints/{id}", self._hint),
            Route("/review", self._review, methods=["GET", "POST"]),
        ]

    async def _list(self, request: Request) -> Response:
        snapshot = self.source.snapshot()
        confirmed = _confirmed(snapshot.sessions)
        standing = snapshot.index.hints.standing.values()
        when = partial(when_of, patterns=snapshot.index.patterns)
        shown = listed(request, standing, lambda each: (each.hint.text, each.hint.author, when(each.hint)))
        return self.page(
            "hints", snapshot, reviews=Reviews(snapshot.index, confirmed), confirmed=confirmed, when_of=when,
            day=_DAY_SECONDS, **shown,
        )  # fmt: skip

    async def _hint(self, request: Request) -> Response:
        snapshot, id = self.source.snapshot(), request.path_params["id"]
        decided = snapshot.index.hints.decisions.get(id)
        if decided is None or decided.hint is None:
            raise HTTPException(404, f"no hint {id!r} is known")
        standing, confirmed = snapshot.index.hints.standing.get(id), _confirmed(snapshot.sessions)
        asks = Reviews(snapshot.index, confirmed).reason(standing) if standing is not None else ""
        history = [each for each in snapshot.history if each.key == decided.key]
        return self.page(
            "hint", snapshot, hint=decided.hint, decided=decided, asks=asks, confirmed=confirmed.get(id, 0.0),
            when=when_of(decided.hint, snapshot.index.patterns), history=history, day=_DAY_SECONDS, max_why=MAX_WHY,
        )  # fmt: skip

    async def _write(self, request: Request) -> Response:
        actions, snapshot = self._operated(), self.source.snapshot()
        id = request.query_params.get("id", "")
        draft = draft_of(snapshot.index, id) if id else Draft(text="", why="")
        if draft is None:
            raise HTTPException(404, f"no hint or item {id!r} is known")
        problem, status, wording = "", 200, draft.wording
        if request.method == "POST":
            given = {name: values[0] for name, values in (await form(request, snapshot.tenant)).items()}
            try:
                draft = _drafted(given, id, self.source.snapshot().now)
                decided = write(snapshot.index, draft, by=who().name, now=time.time())
            except ConfigError as error:
                problem, status = str(error), 409 if isinstance(error, WordsChanged) else 400
            else:
                await actions.publish([decided])
                await self.heard(decided.key, snapshot.decisions.get(decided.key))
                return RedirectResponse(f"/hints/{decided.id}", 303)
        left = round((draft.until - snapshot.now) / _DAY_SECONDS, 2) or 0.01  # 0 would never end it
        return self.page(
            "write", snapshot, status, draft=draft, problem=problem, days=f"{left if draft.until else 0:g}",
            wording=wording, max_text=MAX_TEXT, max_why=MAX_WHY,
        )  # fmt: skip

    async def _review(self, request: Request) -> Response:
        snapshot = self.source.snapshot()
        if request.method == "POST":
            actions, given = self._operated(), await form(request, snapshot.tenant)
            ids, why = given.get("id", []), " ".join(given.get("why", []))
            judgment = next((each for each in JUDGMENTS if given.get("judgment") == [each]), None)
            if judgment is None or not ids or len(ids) > _MOST_AT_ONCE:
                raise HTTPException(400, f"select 1 to {_MOST_AT_ONCE} lessons")
            made = []
            try:
                by, now = who().name, time.time()
                for id, _, wording in (each.partition(" ") for each in ids):
                    made.append(judged(snapshot.index, judgment, id, by=by, why=why, now=now, wording=wording))
            except ConfigError as error:
                raise HTTPException(409 if isinstance(error, WordsChanged) else 400, str(error)) from None
            await actions.publish(made)
            await self.heard(made[-1].key, snapshot.decisions.get(made[-1].key))
            return RedirectResponse(f"/hints/{made[-1].id}" if made[-1].kind == "hint" else "/review", 303)
        since = snapshot.now - _WEEK_SECONDS
        met = Counter(id for each in snapshot.sessions if each.ended >= since for id in each.met)
        found = [_Waiting(item, met[item.pattern or ""]) for item in proposed(snapshot.index)]
        return self.page("review", snapshot, max_why=MAX_WHY, may=self.actions is not None, **listed(request, found))

    def _operated(self) -> Actions:
        if self.actions is None or not who().is_operator:
            raise HTTPException(403, "only an operator writes and judges hints")
        return self.actions


class _Waiting(NamedTuple):
    """A waiting lesson. `met`: last week's failures, among kept sessions, that it would have answered."""

    item: MemoryItem
    met: int

    @property
    def says(self) -> str:
        return words_of(self.item)


def _confirmed(sessions: Iterable[SeenSession]) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in sessions:
        for id in each.worked:
            found[id] = max(found.get(id, 0.0), each.ended)
    return found


def _drafted(given: dict[str, str], id: str, now: float) -> Draft:
    try:
        days = float(given.get("days") or 0)
    except ValueError:
        raise ConfigError(f"{given['days']!r} is no number of days") from None
    if not 0 <= days <= 36_500:
        raise ConfigError("a hint ends after 0 to 36,500 days; 0 never ends it")
    before = tuple(each.strip() for each in given.get("before", "").split("\n") if each.strip())
    texts = {name: given.get(name, "") for name in ("text", "why", "after", "tool", "place", "task", "wording")}
    until = now + days * _DAY_SECONDS if days else 0.0
    return Draft(**texts, id=id, start="start" in given, before=before, until=until)
