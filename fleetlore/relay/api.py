"""Serve the relay's HTTP API: events, advice, ends of sessions, and lore."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from secrets import token_hex
from typing import Any, NamedTuple

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from fleetlore.advice.advice import Advice
from fleetlore.advice.decide import Draft, Reviews, judged, proposed, write
from fleetlore.agent.fleet import Fleet
from fleetlore.agent.session import Session
from fleetlore.http_server import PROBLEM
from fleetlore.join.conversations import Conversations
from fleetlore.limits import bounded, refusals, refused
from fleetlore.recall.index import LoreIndex
from fleetlore.redact.values import fitting
from fleetlore.relay import schemas
from fleetlore.relay.callers import NUMBERLESS, BufferFull, Caller, Member, RemoteSessions, events_of
from fleetlore.relay.native import Native, send_record
from fleetlore.wire.decode import read_json
from fleetlore.wire.events import MAX_ID_LENGTH, OUTCOME, REWARD, Event
from fleetlore.wire.lore import Decision, MemoryItem, Pattern

__all__ = ["OPERATIONS", "PROBLEM", "Api", "Operation", "answer", "body_of", "problem"]

MAX_BODY = 4 * 1024 * 1024
# An event takes about 0.3 ms.
_MAX_EVENTS = 1024
_EVENTS_AT_ONCE = 32
_RETRY_SECONDS = 1
_LOOK_SECONDS = 0.25
# Proxies close silent connections.
_SILENT_SECONDS = 15.0
_MOST_WAITING = 1024
_MOST_TOOLS = 1024


class Api:
    def __init__(self, fleets: Mapping[str, Fleet]) -> None:
        self.sessions = RemoteSessions()
        self.conversations = Conversations()
        self.native = Native()
        self._fleets = fleets
        self._id = token_hex(8)
        self._deciding = {tenant: asyncio.Lock() for tenant in fleets}
        self._changes = {tenant: _Changes(fleet.replica.index) for tenant, fleet in fleets.items()}

    def fleet(self, caller: Caller) -> Fleet:
        if caller.tenant not in self._fleets:
            raise HTTPException(404, f"this relay serves no tenant {caller.tenant!r}")
        return self._fleets[caller.tenant]

    async def events(
        self, fleet: Fleet, caller: Caller, request: Request, query: schemas.EventsQuery
    ) -> schemas.EventsAnswer:
        events = events_of(request.headers, await body_of(request), caller, fleet.clock.now())
        return await self._take_all(fleet, caller, events, query.wait, whole=query.whole)

    async def advise(self, fleet: Fleet, caller: Caller, body: schemas.AdviseRequest) -> schemas.AdviceAnswer:
        session, tool = self._session(fleet, caller, body), body.tool and body.tool[:MAX_ID_LENGTH]
        held = session.hold(tool, body.arguments) if body.hold and tool else None
        found = held or session.advise(tool, body.arguments, call_id=body.call_id[:MAX_ID_LENGTH])
        return _answer(session, found)

    async def brief(self, fleet: Fleet, caller: Caller, body: schemas.BriefRequest) -> schemas.AdviceAnswer:
        session = self._session(fleet, caller, body)
        return _answer(session, session.brief([tool[:MAX_ID_LENGTH] for tool in body.tools[:_MOST_TOOLS]]))

    async def end(
        self, fleet: Fleet, caller: Caller, request: Request, body: schemas.EndRequest, query: schemas.WaitQuery
    ) -> schemas.EventsAnswer:
        id = request.path_params["id"]
        if self.conversations.end(caller.tenant, caller.agent, id, body.outcome, body.reward):
            return await self._answered(fleet, 1, 0, query.wait)
        data: dict[str, Any] = {OUTCOME: body.outcome}
        if body.reward is not None:
            data[REWARD] = body.reward
        number = NUMBERLESS if body.sequence is None else body.sequence
        event = Event("session.ended", caller.tenant, caller.agent, id, number, fleet.clock.now(), data)
        return await self._take_all(fleet, caller, [event], query.wait)

    async def lore(self, fleet: Fleet, caller: Caller, query: schemas.LoreQuery) -> schemas.LoreAnswer:
        index, text = fleet.replica.index, query.text.casefold()

        def wanted(what: str, tool: str, said: str) -> bool:
            return query.show in (None, what) and query.tool in (None, tool) and text in said.casefold()

        patterns = [
            each
            for each in index.patterns.values()
            if each.level == query.level and wanted("patterns", each.tool, f"{each.error_class}\n{each.template}")
        ]
        items = [
            each
            for each in _approved(index)
            if query.kind in (None, each.kind) and wanted("items", each.tool, each.text)
        ]
        patterns.sort(key=lambda each: (-each.failures, each.id))
        items.sort(key=lambda each: each.worth(), reverse=True)
        return schemas.LoreAnswer(tuple(patterns[: query.limit]), tuple(items[: query.limit]))

    async def hints(self, fleet: Fleet, caller: Caller) -> schemas.HintsAnswer:
        index = _operated(fleet, caller)
        standing, reviews = index.hints.standing.values(), Reviews(index)
        asks = {each.decided.id: reason for each in standing if (reason := reviews.reason(each))}
        waiting = proposed(index)
        wording = {each.id: each.wording for each in waiting}
        wording |= {each.decided.id: each.hint.wording for each in standing}
        return schemas.HintsAnswer(tuple([each.decided for each in standing]), tuple(waiting), asks, wording)

    async def write_hint(self, fleet: Fleet, caller: Caller, body: Draft) -> Decision:
        index = _operated(fleet, caller)
        async with self._deciding[caller.tenant]:
            return await _decided(fleet, write(index, body, by=caller.agent, now=fleet.clock.now()))

    async def judge_hint(self, fleet: Fleet, caller: Caller, request: Request, body: schemas.JudgeRequest) -> Decision:
        index, id = _operated(fleet, caller), request.path_params["id"]
        async with self._deciding[caller.tenant]:
            now = fleet.clock.now()
            made = judged(index, body.judgment, id, by=caller.agent, why=body.why, now=now, wording=body.wording)
            return await _decided(fleet, made)

    async def stream(self, fleet: Fleet, caller: Caller) -> Response:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._changes[caller.tenant].listen(), 200, headers, "text/event-stream")

    async def health(self, fleet: Fleet, caller: Caller) -> schemas.HealthAnswer:
        waiting, held = fleet.emitter.waiting, len(self.sessions)
        return schemas.HealthAnswer(fleet.replica.loaded, fleet.sent, waiting, fleet.dropped, held, refusals())

    def _session(self, fleet: Fleet, caller: Caller, about: schemas.AdviseRequest | schemas.BriefRequest) -> Session:
        words = fitting({"goal": about.goal, "task": about.task}) | {"place": about.place}
        session = self.sessions.open(fleet, caller, caller.agent, about.session, **words)
        self.sessions.resize((fleet.tenant, caller.agent, about.session), session.size)
        return session.session

    async def _take_all(
        self, fleet: Fleet, caller: Caller, events: list[Event], wait: float, *, whole: bool = False
    ) -> schemas.EventsAnswer:
        if len(events) > _MAX_EVENTS:
            refused("too_many_events", f"a request of {caller.agent} has {len(events)} events")
            raise HTTPException(413, f"a request has at most {_MAX_EVENTS} events, this one has {len(events)}")
        if not whole:
            self._check_numbers(events)
        elif any(event.sequence == NUMBERLESS for event in events):
            raise HTTPException(400, "who keeps its sessions numbers its events (sequence)")
        taken = 0
        for number, event in enumerate(events):
            if number % _EVENTS_AT_ONCE == _EVENTS_AT_ONCE - 1:
                await asyncio.sleep(0)  # let other callers run
            try:
                taken += self._take(fleet, caller, event, whole)
            except BufferFull:
                raise _Full(number) from None
        return await self._answered(fleet, taken, len(events) - taken, wait)

    async def _answered(self, fleet: Fleet, taken: int, repeated: int, wait: float) -> schemas.EventsAnswer:
        # A hurried flush would make each event its own batch.
        stored = wait > 0 and await fleet.emitter.flush(wait, hurried=False)
        return schemas.EventsAnswer(taken, repeated, stored, self._id)

    def _take(self, fleet: Fleet, caller: Caller, event: Event, whole: bool) -> bool:
        if event.kind == "feedback":
            if event.sequence != NUMBERLESS:
                sent = fleet.emitter.emit(event)
            else:
                outcome, reward = event.data.get(OUTCOME, "unknown"), event.data.get(REWARD)
                sent = Member(fleet, event.agent).feedback(event.session, outcome, reward)
            if not sent:
                raise BufferFull
            return True
        if whole:
            return self.native.take(fleet, caller, event)
        key = fleet.tenant, event.agent, event.session
        if event.sequence == NUMBERLESS:
            if event.kind != "session.started":
                self._check_numbers([event])  # another request may have ended the session
            event = event._replace(sequence=self.sessions.next_number(key) or 0)
        session = self.sessions.open(fleet, caller, event.agent, event.session)
        is_new = session.take(event)
        self.sessions.resize(key, session.size)
        if session.is_over:
            self.sessions.pop(key)
        return is_new

    def _check_numbers(self, events: list[Event]) -> None:
        begun: set[tuple[str, str, str]] = set()
        for event in events:
            key = event.tenant, event.agent, event.session
            if event.kind == "session.started" or event.sequence != NUMBERLESS:
                begun.add(key)
            elif event.kind == "feedback" or key in begun:
                continue
            elif self.sessions.next_number(key) is None:
                what = f"session {event.session!r} of agent {event.agent}"
                raise HTTPException(
                    409, f"{what} is not open here: send session.started first, or number its events (sequence)"
                )


class _Changes:
    def __init__(self, index: LoreIndex) -> None:
        self._index = index
        self._listeners: set[asyncio.Queue[bytes]] = set()
        self._task: asyncio.Task[None] | None = None

    async def listen(self) -> AsyncIterator[bytes]:
        """Yield events `pattern` and `item` (whole) and `forgotten` (an id) after one `ready`; end with `behind`."""
        waiting: asyncio.Queue[bytes] = asyncio.Queue(_MOST_WAITING)
        self._listeners.add(waiting)
        if self._task is None:
            self._task = asyncio.create_task(self._look(self._entries()), name="fleetlore-changes")
        try:
            yield b"event: ready\ndata: {}\n\n"
            while not waiting.full():
                try:
                    yield await asyncio.wait_for(waiting.get(), _SILENT_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
            # The listener is too slow and must read the lore again.
            yield b"event: behind\ndata: {}\n\n"
        finally:
            self._listeners.discard(waiting)
            if not self._listeners and self._task is not None:
                self._task.cancel()
                self._task = None

    def _entries(self) -> dict[str, Pattern | MemoryItem]:
        return {**self._index.patterns, **{each.id: each for each in _approved(self._index)}}

    async def _look(self, before: dict[str, Pattern | MemoryItem]) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = self._entries()
            told = [_told(each) for id, each in now.items() if before.get(id) is not each]
            told += [b'event: forgotten\ndata: {"id":"%b"}\n\n' % id.encode() for id in before.keys() - now.keys()]
            before = now
            for waiting in self._listeners:
                for each in told[: _MOST_WAITING - waiting.qsize()]:
                    waiting.put_nowait(each)


def _operated(fleet: Fleet, caller: Caller) -> LoreIndex:
    """Raises HTTPException (403) for others than operators."""
    if not caller.operator:
        raise HTTPException(403, "only a token with `operator` in the relay's --tokens reads and writes hints")
    return fleet.replica.index


def _approved(index: LoreIndex) -> list[MemoryItem]:
    """Return the items without those that wait for a person: agents have tokens, too."""
    return [each for each in index.items.values() if index.vouched(each) is not False]


def _told(entry: Pattern | MemoryItem) -> bytes:
    kind = b"pattern" if isinstance(entry, Pattern) else b"item"
    return b"event: %b\ndata: %b\n\n" % (kind, entry.to_json())


class _Full(HTTPException):
    def __init__(self, accepted: int) -> None:
        detail = "the buffer is full, the broker takes no events now: send the request again"
        super().__init__(429, detail, {"retry-after": str(_RETRY_SECONDS)})
        self.accepted = accepted


async def _decided(fleet: Fleet, decided: Decision) -> Decision:
    for name, key in decided.records:
        if not await send_record(fleet, name, key, decided.to_json()):
            raise HTTPException(503, "the broker has not taken it: send it again")
    fleet.replica.obey(decided)  # the next decision must see it
    return decided


def _answer(session: Session, advice: Advice) -> schemas.AdviceAnswer:
    tips = tuple(schemas.Shown(tip.id, tip.source, tip.text) for tip in advice.tips)
    return schemas.AdviceAnswer(
        advice.text, session.introduction, tips, advice.risk, advice.sure, advice.held, advice.call
    )


async def body_of(request: Request, most: int = MAX_BODY) -> bytes:
    """Raises HTTPException (413) as soon as it is too large."""
    if (body := await bounded(request.stream(), most)) is None:
        raise HTTPException(413, f"a body has at most {most} bytes")
    return body


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    refused(str(more.get("reason") or f"status_{status}"), detail)
    told = schemas.Problem(HTTPStatus(status).phrase, status, detail, **more)
    return Response(msgspec.json.encode(told), status, headers, PROBLEM)


class Operation(NamedTuple):
    method: str
    path: str
    handler: Callable[..., Awaitable[Any]]
    summary: str
    gives: type
    takes: type | None = None
    query: type | None = None
    reads: bool = False
    status: int = 200


OPERATIONS = (
    Operation("POST", "/v1/events", Api.events,
              "Record what agents did: CloudEvents, structured, binary or a batch",
              schemas.EventsAnswer, query=schemas.EventsQuery, reads=True, status=202),
    Operation("POST", "/v1/advise", Api.advise,
              "What the fleet knows of a call that is about to be made, or after a failure",
              schemas.AdviceAnswer, schemas.AdviseRequest),
    Operation("POST", "/v1/brief", Api.brief, "What to tell a model before it chooses its first call",
              schemas.AdviceAnswer, schemas.BriefRequest),
    Operation("POST", "/v1/sessions/{id}/end", Api.end, "Say how a session ended",
              schemas.EventsAnswer, schemas.EndRequest, schemas.WaitQuery, reads=True, status=202),
    Operation("GET", "/v1/lore", Api.lore, "What the agents of the tenant know now",
              schemas.LoreAnswer, query=schemas.LoreQuery),
    Operation("GET", "/v1/hints", Api.hints,
              "What persons wrote, what asks for review, and lessons that wait for approval", schemas.HintsAnswer),
    Operation("POST", "/v1/hints", Api.write_hint, "Write or change a hint, or correct an item", Decision, Draft),
    Operation("POST", "/v1/hints/{id}/judge", Api.judge_hint, "Approve, reject or expire a hint or a lesson",
              Decision, schemas.JudgeRequest, reads=True),
    Operation("GET", "/v1/stream", Api.stream, "Changes of the lore, as server-sent events", bytes),
    Operation("GET", "/v1/health", Api.health, "How the relay fares", schemas.HealthAnswer),
)  # fmt: skip


async def answer(api: Api, operation: Operation, fleet: Fleet, caller: Caller, request: Request) -> Response:
    """Raises msgspec.ValidationError: body or query have the wrong form."""
    given: list[Any] = [fleet, caller]
    if operation.reads:
        given.append(request)
    if operation.takes is not None:
        given.append(msgspec.convert(read_json(await body_of(request) or b"{}"), operation.takes))
    if operation.query is not None:
        given.append(msgspec.convert(dict(request.query_params), operation.query, strict=False))
    found = await operation.handler(api, *given)
    if isinstance(found, Response):
        return found
    return Response(msgspec.json.encode(found), operation.status, media_type="application/json")
