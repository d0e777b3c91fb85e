"""Hold the inputs of advice besides the lore."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fleetlore.advice.changes import holds
from fleetlore.advice.gate import Reader
from fleetlore.advice.provenance import redact_fenced
from fleetlore.calls.call import CALL_CHARACTERS, MadeCall, is_closed
from fleetlore.calls.context import ERROR_CHARACTERS, CallContext
from fleetlore.calls.document import LookUp
from fleetlore.calls.model import CallModel, Expected, Outlook
from fleetlore.calls.places import PlaceNames
from fleetlore.fingerprint.fingerprint import Failure, object_of, strategy_id
from fleetlore.fingerprint.names import FailureKind
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import MAX_TEXT
from fleetlore.words import WORD

__all__ = ["Asked", "FailedCall", "Known", "Met", "Situation"]

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


class Asked(NamedTuple):
    """The question of the session: a call, or None for the whole session and the tools that it may call next."""

    call: MadeCall | None = None
    tools: tuple[str, ...] = ()
    outlook: Outlook | None = None


class Met(NamedTuple):
    """The history of the session.

    Attributes:
        own_failures: ids of the exact patterns that it met.
        own: the same failures with their names.
        failed: the last, until its tool works.
        led_out: a way out of that failure was shown.
        shown: keys of tips not shown again.
        unchanged: the call in question, if it failed before and none has worked since.
        key: `session_key`. Lore that only this session contributed is left out.
    """

    session: str = ""
    task: str = ""
    goal: str = ""
    own_failures: Collection[str] = ()
    own: Collection[Expected] = ()
    failed: FailedCall | None = None
    led_out: bool = False
    shown: Collection[str] = ()
    context: CallContext | None = None
    key: str = ""
    unchanged: FailedCall | None = None


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
    met: Met
    known: Known

    @property
    def failed(self) -> FailedCall:
        """The call that the sources after a failure are asked about."""
        assert self.met.failed is not None
        return self.met.failed

    @cached_property
    def known_place(self) -> PlaceNames:
        model = self.known.model
        return model.places.get(self.known.place or "", _NOWHERE) if model is not None else _NOWHERE

    @cached_property
    def strategy(self) -> str:
        """Return the id of what solved this goal, as an event names it."""
        return strategy_id(self.met.task, redact_fenced(self.met.goal)[:MAX_TEXT])

    def look_up(self, kind: str) -> LookUp | None:
        calls, model = self._calls, self.known.model
        return model.look_ups.get((calls[0].tool, kind)) if model is not None and calls else None

    def still_works(self, item: MemoryItem) -> bool:
        """Whether calls with the replaced arguments work: in this session, or for more agents than replaced them. This
        session's own failure of such a call is nearer evidence.
        """
        failed, model, context = self.met.failed, self.known.model, self.met.context
        if not item.was or (failed is not None and failed.call.tool == item.tool):
            return False
        known = model.old_value(item.tool, item.was) if model is not None else None
        if known is not None and known.works >= self.known.quorum and known.works > known.replaced:
            return True
        made = context.tried.items() if context is not None and item.is_of_argument else ()
        worked = [text for (tool, text), failures in made if tool == item.tool and not failures]
        return any(holds(object_of(text) or text, item.was) for text in worked)

    @property
    def _calls(self) -> list[MadeCall]:
        asked, failed = self.asked.call, self.met.failed
        return [*([asked] if asked is not None else []), *([failed.call] if failed is not None else [])]

    @cached_property
    def reader(self) -> Reader:
        failed = self.met.failed
        error, seen = ("", ()) if failed is None else (failed.error, failed.seen)
        made = self._calls
        texts = [text for call in made for text in (call.tool, call.text[:CALL_CHARACTERS])]
        text = "\n".join((*self.asked.tools, *texts, error[:ERROR_CHARACTERS])).lower()
        # To split ASCII takes a third of the time of a search.
        own = frozenset(text.translate(_BREAKS).split() if text.isascii() else WORD.findall(text))
        closed = bool(made) and all(is_closed(call.tool, call.json, self.known.closed_tools) for call in made)
        return Reader(own, error, seen, self.known.quorum, closed)
