"""Hold the inputs of advice besides the lore."""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from fleetlore.advice.changes import holds
from fleetlore.advice.gate import PROVEN, Reader
from fleetlore.advice.provenance import redact_fenced
from fleetlore.calls.call import CALL_CHARACTERS, MadeCall, is_closed
from fleetlore.calls.context import ERROR_CHARACTERS, CallContext, keep_newest
from fleetlore.calls.document import LookUp
from fleetlore.calls.model import CallModel, Expected, Outlook
from fleetlore.calls.places import PlaceNames
from fleetlore.fingerprint.fingerprint import Failure, object_of, strategy_id
from fleetlore.fingerprint.names import FailureKind, failure_kind
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import MAX_TEXT
from fleetlore.words import WORD

__all__ = ["Asked", "Asker", "CallHistory", "FailedCall", "Known", "Situation"]

_NOWHERE = PlaceNames(0, {})
# Replaces what ends a word of an ASCII text.
_BREAKS = str.maketrans(dict.fromkeys([chr(code) for code in range(128) if not WORD.match(chr(code))], " "))


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that failed. `seen`: lower-case names in the session's results and calls so far. `moment`: when it failed,
    in Unix seconds.
    """

    call: MadeCall
    error: str
    failure: Failure
    kind: FailureKind
    seen: Collection[str] = ()
    moment: float = 0.0


_KEPT_CALLS = 32
_ENTRY_BYTES = 2048


class CallHistory:
    """The calls of one session that ended.

    Attributes:
        failures: ids of the exact patterns that were met.
        expected: the same failures with their names.
        failed: the last failed call, until its tool works.
        unchanged: the newest failed calls since the last success, by tool and arguments.
    """

    def __init__(self, goal: str) -> None:
        self.calls = self.errors = 0
        self.failures: set[str] = set()
        self.failed: FailedCall | None = None
        self.unchanged: dict[tuple[str, str], FailedCall] = {}
        self.expected: deque[Expected] = deque(maxlen=_KEPT_CALLS)
        self.context = CallContext(goal)

    @property
    def size(self) -> int:
        """Bytes of the failed calls, from above: arguments as values, text and tokens."""
        failed = {id(each): each for each in (self.failed, *self.unchanged.values()) if each is not None}
        return sum(_ENTRY_BYTES + 8 * len(each.call.json) + len(each.error) for each in failed.values())

    def record(
        self, call: MadeCall, said: str, error: tuple[str, str] | None, failure: Failure | None, now: float = 0.0
    ) -> None:
        """`said`: the result or error as text. `error`: its type and message. `now`: Unix seconds."""
        self.calls += 1
        self.context.record(call, said, failure and failure.family)
        if failure is not None and error is not None:
            self.errors += 1
            self.failures.add(failure.exact)
            kind = failure_kind(failure.error_class, failure.template, error[1], call.text)
            program = call.program(kind.names)
            self.expected.append(Expected(kind.kind, kind.names, agents=PROVEN, tool=call.tool, program=program))
            self.failed = FailedCall(call, said, failure, kind, self.context.seen | self.context.worked, now)
            keep_newest(self.unchanged, (call.tool, call.json), self.failed, _KEPT_CALLS)
            return
        self.unchanged.clear()
        if self.failed is not None and self.failed.call.tool == call.tool:
            self.failed = None


class Asked(NamedTuple):
    """The question of the session: a call, or None for the whole session and the tools that it may call next."""

    call: MadeCall | None = None
    tools: tuple[str, ...] = ()
    outlook: Outlook | None = None


class Asker(NamedTuple):
    """The session that asks.

    Attributes:
        key: `session_key`. Lore that only this session contributed is left out.
        led_out: a way out of its last failure was shown.
        shown: keys of tips not shown again.
    """

    session: str = ""
    task: str = ""
    goal: str = ""
    key: str = ""
    led_out: bool = False
    shown: Collection[str] = ()


class Known(NamedTuple):
    """The agent's knowledge besides the lore. `now`: Unix seconds."""

    now: float
    model: CallModel | None = None
    place: str | None = None
    quorum: int = 2
    closed_tools: tuple[str, ...] = ()
    holdout_share: float = 0.0


@dataclass(frozen=True)
class Situation:
    asked: Asked
    asker: Asker
    known: Known
    history: CallHistory = field(default_factory=lambda: CallHistory(""))

    @property
    def failed(self) -> FailedCall:
        """The call that the sources after a failure are asked about."""
        assert self.history.failed is not None
        return self.history.failed

    @property
    def unchanged(self) -> FailedCall | None:
        """The call in question, if it failed before and none has worked since."""
        call = self.asked.call
        return None if call is None else self.history.unchanged.get((call.tool, call.json))

    @cached_property
    def known_place(self) -> PlaceNames:
        model = self.known.model
        return model.places.get(self.known.place or "", _NOWHERE) if model is not None else _NOWHERE

    @cached_property
    def strategy(self) -> str:
        """Return the id of what solved this goal, as an event names it."""
        return strategy_id(self.asker.task, redact_fenced(self.asker.goal)[:MAX_TEXT])

    def look_up(self, kind: str) -> LookUp | None:
        calls, model = self._calls, self.known.model
        return model.look_ups.get((calls[0].tool, kind)) if model is not None and calls else None

    def still_works(self, item: MemoryItem) -> bool:
        """Whether calls with the replaced arguments work: in this session, or for more agents than replaced them. This
        session's own failure of such a call is nearer evidence.
        """
        failed, model = self.history.failed, self.known.model
        if not item.was or (failed is not None and failed.call.tool == item.tool):
            return False
        known = model.old_value(item.tool, item.was) if model is not None else None
        if known is not None and known.works >= self.known.quorum and known.works > known.replaced:
            return True
        made = self.history.context.tried.items() if item.is_of_argument else ()
        worked = [text for (tool, text), failures in made if tool == item.tool and not failures]
        return any(holds(object_of(text) or text, item.was) for text in worked)

    @property
    def _calls(self) -> list[MadeCall]:
        asked, failed = self.asked.call, self.history.failed
        return [*([asked] if asked is not None else []), *([failed.call] if failed is not None else [])]

    @cached_property
    def reader(self) -> Reader:
        failed = self.history.failed
        error, seen = ("", ()) if failed is None else (failed.error, failed.seen)
        made = self._calls
        texts = [text for call in made for text in (call.tool, call.text[:CALL_CHARACTERS])]
        text = "\n".join((*self.asked.tools, *texts, error[:ERROR_CHARACTERS])).lower()
        # To split ASCII takes a third of the time of a search.
        own = frozenset(text.translate(_BREAKS).split() if text.isascii() else WORD.findall(text))
        closed = bool(made) and all(is_closed(call.tool, call.json, self.known.closed_tools) for call in made)
        return Reader(own, error, seen, self.known.quorum, closed)
