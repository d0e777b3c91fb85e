"""Keep a session for each conversation with a model that passes by, and record each of its calls once.

A conversation is known by the name that its client gives it; else by what it goes on from: the ids of its calls, or
the response before. A request without either begins one, unless one with the same beginning waits for its second
turn: so sub-agents, and runs of the same prompt side by side, are told apart by what their models call.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from contextvars import copy_context
from hashlib import blake2b
from itertools import takewhile
from typing import Any, NamedTuple

from fleetlore.agent.fleet import Fleet
from fleetlore.agent.model_texts import after_call, prompt_prefix
from fleetlore.agent.session import Session
from fleetlore.relay.dialects import Body, Dialect, Made, Turn, call_of_item
from fleetlore.relay.sessions import MAX_SESSIONS, Member
from fleetlore.wire.events import Outcome

__all__ = ["About", "Conversation", "Conversations"]

# After so long without a request a conversation is left.
SILENT_SECONDS = 600.0
_MAX_GOAL = 2_000

Key = tuple[str, ...]


class About(NamedTuple):
    """What headers say of a conversation."""

    name: str = ""
    goal: str = ""
    task: str = ""
    place: str = ""


class Conversation:
    """One session, and what was said in it.

    Attributes:
        keys: that it is found by.
        used_at, answered_at: when a request came, and when the last answer had gone; by the fleet's clock.
    """

    def __init__(self, session: Session, now: float) -> None:
        self.session = session
        self.keys: set[Key] = set()
        self.used_at = now
        self.answered_at: float | None = None
        self.calls: dict[str, Made] = {}
        # By id of the call, and how many results of that id came before it (some servers number calls anew each turn).
        self._added: dict[tuple[str, int], str] = {}

    def tell(self, dialect: Dialect, body: Body, turns: list[Turn], *, is_new: bool, now: float) -> None:
        """Record the results that were not seen before, and put into the request what the model is told.

        Args:
            is_new: what lies before the last turn of the model was not seen here, and is not recorded.
        """
        last = max((number for number, turn in enumerate(turns) if turn.role == "assistant"), default=-1)
        met: Counter[str] = Counter()
        for number, turn in enumerate(turns):
            self.calls.update((call.id, call) for call in turn.calls)
            for result in turn.results:
                key, call = (result.call, met[result.call]), self.calls.get(result.call)
                met[result.call] += 1
                if key not in self._added:
                    self._added[key] = ""
                    if call is not None and (number > last or not is_new):
                        self._added[key] = self._record(call, result.text, result.failed, now)
                if self._added[key]:
                    result.add(self._added[key], dialect.part)
        dialect.tell(body, prompt_prefix(self.session, _tools_of(body)))

    def _record(self, call: Made, text: str, failed: bool, now: float) -> str:
        """Record a call; what to put behind its result."""
        seconds = max(0.0, now - self.answered_at) if self.answered_at is not None else 0.0
        said: dict[str, Any] = {"error_text": text} if failed else {"result": text}
        self.session.record(call.tool, call.arguments, call_id=call.id, duration_seconds=seconds, **said)
        return after_call(self.session, failed=failed)


class Conversations:
    """Those under way, of all agents."""

    def __init__(self) -> None:
        self._found: dict[Key, Conversation] = {}
        self._open: OrderedDict[Conversation, None] = OrderedDict()  # the longest silent first

    def tell(self, fleet: Fleet, agent: str, dialect: Dialect, body: Body, about: About) -> Conversation | None:
        """Record what is new in a request and put into it what its model is told; None where there are no tools."""
        turns, now = list(dialect.turns(body)), fleet.clock.monotonic()
        if not _tools_of(body) and not any(turn.calls or turn.results for turn in turns):
            return None
        self._leave_silent(now)
        owner = (fleet.tenant, agent)
        start, keys = self._keys(owner, body, turns, about)
        found = next((self._found[key] for key in keys if key in self._found), None)
        if found is None and not about.name:
            found = self._found.get(start)
        is_new = found is None
        if found is None:
            goal = about.goal or next((turn.text for turn in turns if turn.role == "user" and turn.text), "")
            session = Member(fleet, agent).session(
                goal[:_MAX_GOAL], about.task, about.name or None, place=about.place, resume=bool(about.name)
            )
            # Entered so that it is nobody's current session here.
            found = Conversation(copy_context().run(session.__enter__), now)
        # One that waits for its second turn is the next of the same beginning.
        self._link(found, keys or [start])
        if keys:
            self._unlink(found, start)
        found.used_at = now
        self._open[found] = None
        self._open.move_to_end(found)
        found.tell(dialect, body, turns, is_new=is_new, now=now)
        return found

    def heard(self, fleet: Fleet, agent: str, conversation: Conversation, response: Mapping[str, Any] | None) -> None:
        """Note that an answer has gone, and of OpenAI's responses what the next request may go on from."""
        conversation.answered_at = fleet.clock.monotonic()
        if response is None or not conversation.session.is_open:
            return
        calls = [call for item in response.get("output") or () if (call := call_of_item(item))]
        conversation.calls.update((call.id, call) for call in calls)
        starts = [key for key in conversation.keys if key[2] == "start"]
        ids: list[Key] = [(fleet.tenant, agent, "response", str(response["id"]))]
        ids += [(*start[:2], "call", *start[3:], call.id) for start in starts for call in calls]
        self._link(conversation, ids)
        for start in starts if calls else ():
            self._unlink(conversation, start)

    def end(self, tenant: str, agent: str, name: str, outcome: Outcome, reward: float | None) -> bool:
        """Say how the conversation of this name ended; False where none is under way."""
        found = self._found.get((tenant, agent, "name", name))
        if found is None:
            return False
        if outcome != "unknown":
            (found.session.succeed if outcome == "success" else found.session.fail)(reward)
        self._leave(found)
        return True

    def leave_all(self) -> None:
        """End all of them."""
        for each in list(self._open):
            self._leave(each)

    def _keys(self, owner: Key, body: Body, turns: list[Turn], about: About) -> tuple[Key, list[Key]]:
        """The key of the beginning, and those of what a request goes on from.

        The beginning is what a person says first: a system message may hold the time, or a number of the request.
        """
        first = takewhile(lambda turn: turn.role in ("system", "developer", "user"), turns)
        beginning = [turn.text for turn in first if turn.role == "user"]
        digest = blake2b("\x1f".join(beginning).encode("utf-8", "replace"), digest_size=16).hexdigest()
        start = (*owner, "start", digest)
        if about.name:
            return start, [(*owner, "name", about.name)]
        before = body.get("previous_response_id") or body.get("conversation")
        if before:
            return start, [(*owner, "response", str(before["id"] if isinstance(before, dict) else before))]
        # Of a stored response's items, the calls among them, no more than a reference may come.
        ids = [
            id for turn in turns for id in (*(each.id for each in turn.calls), *(each.call for each in turn.results))
        ]
        return start, [(*owner, "call", digest, id) for id in dict.fromkeys(ids)]

    def _link(self, conversation: Conversation, keys: list[Key]) -> None:
        conversation.keys.update(keys)
        self._found.update(dict.fromkeys(keys, conversation))

    def _unlink(self, conversation: Conversation, key: Key) -> None:
        if self._found.get(key) is conversation:
            del self._found[key]
        conversation.keys.discard(key)

    def _leave_silent(self, now: float) -> None:
        while self._open and (len(self._open) > MAX_SESSIONS or next(iter(self._open)).used_at < now - SILENT_SECONDS):
            self._leave(next(iter(self._open)))

    def _leave(self, conversation: Conversation) -> None:
        del self._open[conversation]
        for key in list(conversation.keys):
            self._unlink(conversation, key)
        conversation.session.__exit__(None, None, None)


def _tools_of(body: Body) -> list[str]:
    of = (each.get("function") or each.get("custom") or each for each in body.get("tools") or ())
    return [each["name"] for each in of if "name" in each]
