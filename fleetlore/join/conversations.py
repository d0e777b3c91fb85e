"""Keep a session for each conversation with a model, and record each of its calls once.

A conversation is known by its client's name for it, the ids of its calls, or the response before. Other requests begin
one, unless one with the same beginning waits for its second turn.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import islice, takewhile
from threading import Lock
from typing import Any

from fleetlore.agent.action import current_session
from fleetlore.agent.doors import after_call, prompt_prefix
from fleetlore.agent.session import Session
from fleetlore.fingerprint.fingerprint import arguments_text
from fleetlore.join.dialects import Body, Dialect, Made, Result, Turn, call_of_item, readable, response_of
from fleetlore.limits import Shares, refused
from fleetlore.redact.values import MAX_CHARACTERS, fitting
from fleetlore.transcripts.calls import OpenCalls
from fleetlore.wire.decode import changed_texts
from fleetlore.wire.events import Outcome

__all__ = ["Conversation", "Conversations", "SessionCalls"]

log = logging.getLogger(__name__)

SILENT_SECONDS = 600.0
_MOST = 10_000
_ENTRY_BYTES = 512
# A longer conversation passes unread: this many turns, calls and results take 20 ms of the event loop.
_MAX_TURNS = 4096
# The last results of a request that are recorded, at 0.2 ms each.
_MAX_RESULTS = 128
# No model takes more.
_MAX_TOOLS = 1024

Key = tuple[str, ...]


class Conversation:
    def __init__(self, owner: Key, session: Session, now: float) -> None:
        self.owner = owner
        self.session = session
        self.size = 0
        self.keys: set[Key] = set()
        self.used_at = now
        self.answered_at: float | None = None
        self.calls: dict[str, Made] = {}
        # By call id and number of earlier results of that id: some servers number calls anew each turn.
        self._added: dict[tuple[str, int], str] = {}

    def tell(self, dialect: Dialect, body: Body, turns: list[Turn], *, is_new: bool, now: float) -> None:
        last = max((number for number, turn in enumerate(turns) if turn.role == "assistant"), default=-1)
        met: Counter[str] = Counter()
        calls = OpenCalls[Made](lambda call: None)
        results = []
        for number, turn in enumerate(turns):
            if turn.role == "user" and not turn.results:
                calls.end_turn()
            for call in turn.calls:
                calls.add(call.id, call.tool, call)
            self.keep(turn.calls)
            for result in turn.results:
                earlier = None if met[result.call] else self.calls.get(result.call)
                made = calls.pop(result.call, result.tool) or earlier
                is_recorded = number > last or not is_new
                results.append(((result.call, met[result.call]), result, made if is_recorded else None, is_recorded))
                met[result.call] += 1
        unseen = [key for key, _, _, is_recorded in results if is_recorded and key not in self._added]
        if left_out := unseen[:-_MAX_RESULTS]:
            refused("results_unread", f"a request has {len(unseen)} new results: the last {_MAX_RESULTS} are recorded")
            self._added.update(dict.fromkeys(left_out, ""))
            self.size += sum(_ENTRY_BYTES + len(id) for id, _ in left_out)
        for key, result, made, is_recorded in results:
            if key not in self._added:
                if made is None and is_recorded:
                    refused("result_without_call", f"a result for {result.call!r} answers no call of its conversation")
                self._added[key] = "" if made is None else self._record(made, result, now)
                self.size += _ENTRY_BYTES + len(result.call) + len(self._added[key])
            if self._added[key]:
                result.add(self._added[key], dialect.part)
        dialect.tell(body, prompt_prefix(self.session, _tools_of(body)))

    def keep(self, calls: Iterable[Made]) -> None:
        for call in calls:
            if call.id and self.calls.get(call.id) != call:
                self.calls[call.id] = call
                self.size += _ENTRY_BYTES + len(call.id) + len(arguments_text(call.arguments))

    def _record(self, call: Made, result: Result, now: float) -> str:
        error, made = result.verdict
        if not made:
            refused("call_never_made", f"a call of {call.tool} was refused or cancelled before it was made")
            return ""
        seconds = max(0.0, now - self.answered_at) if self.answered_at is not None else 0.0
        ended: dict[str, Any] = {"result": result.value} if error is None else {"error_text": error[:MAX_CHARACTERS]}
        # The session keeps failed calls.
        arguments = fitting({"": call.arguments}).get("")
        self.session.record(call.tool, arguments, call_id=call.id, duration_seconds=seconds, **ended)
        return after_call(self.session, failed=error is not None) if result.is_told else ""


class Conversations:
    def __init__(self, *, own: bool = True) -> None:
        self._own = own
        self._found: dict[Key, Conversation] = {}
        self._open: OrderedDict[Conversation, None] = OrderedDict()
        self._shares = Shares[Conversation, None](_MOST, "conversations", left=lambda gone, _: self._leave(gone))

    def tell(
        self, owner: Key, dialect: Dialect, body: Body, begin: Callable[[str], Session], now: float, *, name: str = ""
    ) -> Conversation | None:
        """Record the new part of a request and add advice. Return None without tools."""
        turns = list(islice(dialect.turns(body), _MAX_TURNS))
        if len(turns) == _MAX_TURNS or sum(len(turn.calls) + len(turn.results) for turn in turns) > _MAX_TURNS:
            refused("conversation_too_long", f"a conversation of {owner} has more than {_MAX_TURNS} turns and calls")
            return None
        if not _tools_of(body) and not any(turn.calls or turn.results for turn in turns):
            return None
        self._leave_silent(now)
        start, keys = self._keys(owner, body, turns, name)
        found = next((self._found[key] for key in keys if key in self._found), None)
        if found is None and not name:
            found = self._found.get(start)
        is_new = found is None
        if found is None:
            goal = next((turn.text for turn in turns if turn.role == "user" and turn.text), "")
            found = Conversation(owner, begin(goal), now)
        self._link(found, keys or [start])
        if keys:
            self._unlink(found, start)
        found.used_at = now
        self._open[found] = None
        self._open.move_to_end(found)
        self._shares.put((owner[0], owner[1:]), found, None)
        try:
            found.tell(dialect, body, turns, is_new=is_new, now=now)
        finally:
            self._resize(found)
        return found

    def heard(self, conversation: Conversation, answer: bytes) -> None:
        """Note that an answer has gone. `answer`: OpenAI's response."""
        owner = conversation.owner
        conversation.answered_at = conversation.session.fleet.clock.monotonic()
        response = response_of(answer)
        if response is None or conversation not in self._open:
            return
        calls = list(filter(None, readable(response.get("output") or (), call_of_item)))
        conversation.keep(calls)
        starts = [key for key in conversation.keys if key[len(owner)] == "start"]
        ids: list[Key] = [(*owner, "response", str(response["id"]))]
        ids += [(*owner, "call", start[-1], call.id) for start in starts for call in calls]
        self._link(conversation, ids)
        for start in starts if calls else ():
            self._unlink(conversation, start)
        self._resize(conversation)

    def end(self, tenant: str, agent: str, name: str, outcome: Outcome, reward: float | None) -> bool:
        """Report how the conversation of this name ended. Return whether there is one."""
        found = self._found.get((tenant, agent, "name", name))
        if found is None:
            return False
        if outcome != "unknown":
            (found.session.succeed if outcome == "success" else found.session.fail)(reward)
        self._leave(found)
        return True

    def leave_all(self) -> None:
        for each in list(self._open):
            self._leave(each)

    def _keys(self, owner: Key, body: Body, turns: list[Turn], name: str) -> tuple[Key, list[Key]]:
        """A beginning is what a person says first: a system message may hold the time."""
        first = takewhile(lambda turn: turn.role in ("system", "developer", "user"), turns)
        beginning = [turn.text for turn in first if turn.role == "user"]
        digest = blake2b("\x1f".join(beginning).encode("utf-8", "replace"), digest_size=16).hexdigest()
        start = (*owner, "start", digest)
        if name:
            return start, [(*owner, "name", name)]
        before = body.get("previous_response_id") or body.get("conversation")
        if before:
            return start, [(*owner, "response", str(before["id"] if isinstance(before, dict) else before))]
        # A request may only refer to the items of a stored response.
        ids = [id for turn in turns for id in (*map(_key_of, turn.calls), *(each.call for each in turn.results))]
        return start, [(*owner, "call", digest, id) for id in dict.fromkeys(ids) if id]

    def _link(self, conversation: Conversation, keys: list[Key]) -> None:
        conversation.size += sum(_ENTRY_BYTES + len(key[-1]) for key in set(keys) - conversation.keys)
        conversation.keys.update(keys)
        self._found.update(dict.fromkeys(keys, conversation))

    def _unlink(self, conversation: Conversation, key: Key) -> None:
        if self._found.get(key) is conversation:
            del self._found[key]
        conversation.keys.discard(key)

    def _resize(self, conversation: Conversation) -> None:
        self._shares.resize(conversation, conversation.size + conversation.session.size)

    def _leave_silent(self, now: float) -> None:
        while self._open:
            first = next(iter(self._open))
            if first.used_at >= now - SILENT_SECONDS and first.session.is_open:
                return
            self._leave(first)

    def _leave(self, conversation: Conversation) -> None:
        del self._open[conversation]
        self._shares.pop(conversation)
        for key in list(conversation.keys):
            self._unlink(conversation, key)
        if self._own:
            conversation.session.__exit__(None, None, None)


def _key_of(call: Made) -> str:
    if call.id:
        return call.id
    return blake2b(
        f"{call.tool} {arguments_text(call.arguments)}".encode("utf-8", "replace"), digest_size=16
    ).hexdigest()


def _tools_of(body: Body) -> list[str]:
    given = (each for each in (*(body.get("tools") or ()), *(body.get("functions") or ())) if isinstance(each, dict))
    of = (each.get("function") or each.get("custom") or each for each in given)
    found = (each["name"] for each in of if isinstance(each, dict) and isinstance(each.get("name"), str))
    return list(islice(dict.fromkeys(found), _MAX_TOOLS))


class SessionCalls:
    """A client's conversations, each in the session that it began in. For any thread; it never raises."""

    def __init__(self) -> None:
        self._conversations = Conversations(own=False)
        self._lock = Lock()

    def told(self, dialect: Dialect, body: Body) -> tuple[Body, Conversation | None]:
        """Return a copy of a request with advice, or the request itself if it is malformed or outside of a session."""
        session = current_session()
        if session is None:
            return body, None
        copied = changed_texts(body, lambda text: text)
        try:
            with self._lock:
                conversation = self._conversations.tell(
                    (session.id,), dialect, copied, lambda said: session, session.fleet.clock.monotonic()
                )
        except Exception as error:
            log.warning("a request in session %s passes unread: %r", session.id, error)
            return body, None
        return (body, None) if conversation is None else (copied, conversation)

    def heard(self, conversation: Conversation, answer: bytes = b"") -> None:
        try:
            with self._lock:
                self._conversations.heard(conversation, answer)
        except Exception as error:
            log.warning("an answer in session %s passes unread: %r", conversation.session.id, error)
