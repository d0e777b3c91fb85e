"""Hold what a session is about to do, and what it has met so far: all that advice depends on beside the lore."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import KW_ONLY, dataclass, field

from fleetlore.advice.gate import Reader
from fleetlore.calls.context import CALL_CHARACTERS, ERROR_CHARACTERS, CallContext, Mark
from fleetlore.calls.document import LookUp
from fleetlore.calls.features import Call
from fleetlore.calls.model import CallModel, Expected, Outlook
from fleetlore.calls.places import PlaceNames
from fleetlore.calls.worlds import is_closed
from fleetlore.fingerprint.fingerprint import Failure, arguments_text, call_id
from fleetlore.retrieval.adapter import Ranking, RetrievalSlot, query_text
from fleetlore.wire.lore import MemoryItem
from fleetlore.words import WORD

__all__ = ["FailedCall", "Situation"]


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that failed, and what its session knew then.

    Attributes:
        text: of the arguments (`fleetlore.calls.context.text_of`).
        error: what the environment said.
        seen: lower-case names in results of its session and in its calls so far.
        arguments: as they were sent; `marks`: what was known of the things that they name.
    """

    text: str
    error: str
    failure: Failure
    seen: Collection[str] = ()
    arguments: str = ""
    marks: tuple[Mark, ...] = ()


@dataclass(slots=True)
class Situation:
    """What a session is about to do, and what it has met so far.

    Attributes:
        tool, arguments: the call that is about to be made; None for advice on the session as a whole.
        tools: of which one may be called next, where no call is asked about; empty where they are not known.
        now: wall time in seconds, by which transient errors grow old.
        task, goal: the session's task, and its goal in words.
        session: its id; what it alone has taught the fleet is left out.
        own_failures: ids of the exact patterns that it met.
        failed: the call that failed last, if it has not got past it.
        led_out: whether it was shown a way out of that: one is enough until the next failure.
        model: of calls; None before the first version. context: what the session has shown, for the model.
        place: where the session is; None where that is not known.
        own: failures of the session, with their names.
        outlook: what the model foresees of the call; None without one, or where the tool is not known.
        shown: keys of the tips that it was shown, which are not shown again.
        quorum, closed_tools: settings of the same names.
        retrieval: what ranks ways out; None where the agent does not follow it.
        call, call_id: the call that is asked about, and the id of its kind; None without one.
    """

    tool: str | None = None
    arguments: object = None
    _: KW_ONLY
    now: float
    task: str = ""
    goal: str = ""
    session: str = ""
    own_failures: Collection[str] = ()
    failed: FailedCall | None = None
    led_out: bool = False
    model: CallModel | None = None
    context: CallContext | None = None
    place: str | None = None
    tools: tuple[str, ...] = ()
    own: Collection[Expected] = ()
    outlook: Outlook | None = None
    shown: Collection[str] = ()
    retrieval: RetrievalSlot | None = None
    quorum: int = 2
    closed_tools: tuple[str, ...] = ()
    call: Call | None = field(init=False, default=None)
    call_id: str = field(init=False, default="")
    _reader: Reader | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.tool is not None:
            self.call = Call.made(self.tool, arguments_text(self.arguments))
            self.call_id = call_id(self.tool, self.call.arguments)

    @property
    def known_place(self) -> PlaceNames | None:
        """What the call model knows of the place."""
        return self.model.places.get(self.place) if self.model is not None and self.place is not None else None

    def look_up(self, kind: str) -> LookUp | None:
        """The call by which other sessions found what a call lacked that failed so."""
        tool = self.tool or (self.failed.failure.tool if self.failed is not None else "")
        return self.model.look_ups.get((tool, kind)) if self.model is not None else None

    def ranked(self, items: Sequence[MemoryItem]) -> list[MemoryItem]:
        """Ways out of the failed call, the likest to what got others past the like first; as they are without a version
        of the retrieval adapter.
        """
        adapter = self.retrieval.value if self.retrieval is not None else None
        if self.retrieval is None or adapter is None or self.failed is None or len(items) < 2:
            return list(items)
        ranking = Ranking([item.text for item in items], self.retrieval.encoder)
        scores = ranking.scores(query_text(self.failed.error, self.failed.text, self.goal), adapter)
        return [items[place] for place in (-scores).argsort(kind="stable").tolist()]

    @property
    def reader(self) -> Reader:
        """What the gate asks of this session."""
        if self._reader is not None:  # each tip asks
            return self._reader
        texts, failed = [*self.tools], self.failed
        if self.call is not None:
            texts += [self.call.tool, self.call.text[:CALL_CHARACTERS]]
        if failed is not None:
            texts += [failed.failure.tool, failed.text[:CALL_CHARACTERS], failed.error[:ERROR_CHARACTERS]]
        own = frozenset(WORD.findall("\n".join(texts).lower()))
        made = [(self.call.tool, self.call.arguments)] if self.call is not None else []
        made += [(failed.failure.tool, failed.arguments)] if failed is not None else []
        closed = bool(made) and all(is_closed(tool, sent, self.closed_tools) for tool, sent in made)
        error, seen = ("", ()) if failed is None else (failed.error, failed.seen)
        self._reader = Reader(own, error, seen, self.quorum, closed)
        return self._reader
