"""Ask for a session what the fleet knows, and note what it is shown."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from fleetlore.advice.advice import Advice, advise, chosen, warn
from fleetlore.advice.changes import holds, is_own, item_tip
from fleetlore.advice.gate import PROVEN, Tip, renamed
from fleetlore.advice.provenance import AdviceLedger
from fleetlore.advice.situation import Asked, FailedCall, Known, Met, Situation
from fleetlore.advice.sources import PERSON, WAYS_OUT
from fleetlore.calls.call import MadeCall
from fleetlore.calls.context import CallContext
from fleetlore.calls.model import CallModel, Expected, Outlook
from fleetlore.fingerprint.fingerprint import Failure, arguments_text
from fleetlore.fingerprint.names import failure_kind
from fleetlore.recall.index import is_recalled
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.principals import session_key

if TYPE_CHECKING:
    from fleetlore.agent.fleet import Fleet
    from fleetlore.agent.session_events import SessionOptions

__all__ = ["CallHistory", "SessionAdvice"]

_KEPT_CALLS = 32


class CallHistory:
    """The calls of one session that ended.

    Attributes:
        failures: ids of the exact patterns that were met.
        failed: the last failed call, until a call of its tool works.
        unchanged: the newest calls that failed since the last success, by tool and arguments.
        expected: the failures with names.
    """

    def __init__(self, goal: str) -> None:
        self.calls = self.errors = 0
        self.failures: set[str] = set()
        self.failed: FailedCall | None = None
        self.unchanged: dict[tuple[str, str], FailedCall] = {}
        self.expected: deque[Expected] = deque(maxlen=_KEPT_CALLS)
        self.context = CallContext(goal)

    def record(self, call: MadeCall, said: str, error: tuple[str, str] | None, failure: Failure | None) -> None:
        """Add a call that ended. `said`: the result or error as text. `error`: its type and message."""
        self.calls += 1
        self.context.record(call, said, failure and failure.family)
        if failure is not None and error is not None:
            self.errors += 1
            self.failures.add(failure.exact)
            kind = failure_kind(failure.error_class, failure.template, error[1], call.text)
            self.expected.append(Expected(kind.kind, kind.names, agents=PROVEN))
            context = self.context
            marks = tuple(context.objects.marks(call.json))
            self.failed = FailedCall(call, said, failure, kind, context.seen | context.worked, marks)
            self.unchanged.pop((call.tool, call.json), None)
            self.unchanged[call.tool, call.json] = self.failed
            if len(self.unchanged) > _KEPT_CALLS:
                del self.unchanged[next(iter(self.unchanged))]
            return
        self.unchanged.clear()
        if self.failed is not None and self.failed.call.tool == call.tool:
            self.failed = None


class SessionAdvice:
    """Gives advice to one session. The caller holds the fleet's lock.

    It does not know its `Session`: a reference cycle would wait for the garbage collector, which stops a process of
    many sessions for a tenth of a second.

    Attributes:
        nonce: of the fence around its advice.
    """

    def __init__(
        self, fleet: Fleet, options: SessionOptions, session: str, history: CallHistory, ledger: AdviceLedger
    ) -> None:
        self._fleet, self._options, self._session = fleet, options, session
        self._history, self._ledger = history, ledger
        self.nonce = self._fleet.new_nonce()
        # Held calls, names in shown tips, and the failure whose way out was shown.
        self._held: set[tuple[str, str]] = set()
        self._brought: set[str] = set()
        self._led_out: FailedCall | None = None
        self._recognised: tuple[CallModel, int, str | None] | None = None
        self._names: dict[str, str] = {}
        self._recorded: re.Pattern[str] | None = None

    def know_as(self, names: Mapping[str, str]) -> None:
        """See `Session.know_as`."""
        new = {recorded: name for recorded, name in names.items() if self._names.get(recorded, recorded) != name}
        if new:
            self._names |= new
            longest_first = sorted(self._names, key=len, reverse=True)
            ends = [re.escape(each) + ("" if each.endswith("__") else r"(?![\w-])") for each in longest_first]
            self._recorded = re.compile(rf"(?<![\w-])(?:{'|'.join(ends)})")

    def moment(self, tool: str | None, arguments: object, tools: tuple[str, ...] = (), *, unseen: bool) -> Situation:
        """Collect the inputs of advice besides the lore.

        Args:
            tool, arguments: the call that is asked about, or None for the whole session.
            tools: tools that may be called next, if no call is asked about.
            unseen: leave out tips that were shown before. Hints of persons are shown once in any case.
        """
        fleet, options, history = self._fleet, self._options, self._history
        fleet.check_lore()
        for each in tools if tool is None else (tool,):
            fleet.replica.uses(each)
        call = MadeCall(tool, arguments) if tool is not None else None
        asked = Asked(call, tools, self._outlook(call) if call is not None else None)
        met = Met(
            self._session,
            options.task,
            options.goal,
            history.failures,
            history.expected,
            history.failed,
            led_out=unseen and history.failed is self._led_out,
            shown=self._ledger.shown if unseen else {key for key in self._ledger.shown if key.startswith(PERSON)},
            context=history.context,
            key=session_key(fleet.agent, self._session),
            unchanged=history.unchanged.get((call.tool, call.json)) if call is not None else None,
        )
        return Situation(asked, met, self._known())

    def _known(self) -> Known:
        fleet = self._fleet
        settings = fleet.settings
        return Known(
            fleet.clock.now(),
            fleet.call_model,
            self._place(),
            settings.quorum,
            settings.closed_tools,
        )

    def advise(
        self, moment: Situation, cautions: Sequence[Tip], most: int, max_chars: int, *, about: str = ""
    ) -> Advice:
        """See `Session.advise`. `about`: key of the call that is asked about (`MadeCall.key`)."""
        began = perf_counter()
        found = advise(
            self._fleet.replica.index, moment, cautions, holdout_share=self._share, most=most, max_chars=max_chars
        )
        shown = self._show(found, about)
        self._fleet.count_advice(shown, perf_counter() - began)
        return shown

    def hold(self, tool: str, arguments: object) -> Advice | None:
        text = arguments_text(arguments)
        if (tool, text) in self._held or any(holds(arguments, (part,)) for part in self._brought):
            return None
        moment = self.moment(tool, arguments, unseen=False)
        advice = warn(self._fleet.replica.index, moment, holdout_share=self._share)
        if not advice or not (advice.sure or self._fleet.settings.hold == "always"):
            return None
        self._held.add((tool, text))
        # The call that is made next has another id.
        return self._show(advice._replace(held=True), "")

    def found(self, items: Sequence[MemoryItem], most: int) -> Advice:
        """Return advice from items of a search, the best match first, without hidden ones."""
        replica = self._fleet.replica
        key = session_key(self._fleet.agent, self._session)
        told = [item for item in items if is_recalled(item) and not replica.index.hides(item)]
        tips = [item_tip(item, "searched") for item in told if not is_own(item, key)]
        moment = Situation(Asked(), Met(self._session), self._known())
        return self._show(chosen(replica.index, tips, moment, holdout_share=self._share, most=most), "")

    def outlook(self, calls: Sequence[tuple[str, object]]) -> list[Outlook | None]:
        return [self._outlook(MadeCall(tool, arguments)) for tool, arguments in calls]

    def _place(self) -> str | None:
        model, context = self._fleet.call_model, self._history.context
        if self._options.place or model is None:
            return self._options.place or None
        if self._recognised is None or self._recognised[:2] != (model, context.calls):
            self._recognised = model, context.calls, model.places.recognise(context)
        return self._recognised[2]

    def _outlook(self, call: MadeCall) -> Outlook | None:
        model = self._fleet.call_model
        return None if model is None else model.outlook(call, self._history.context, self._place())

    @property
    def _share(self) -> float:
        return self._fleet.settings.holdout_share

    def _show(self, advice: Advice, about: str) -> Advice:
        """Note the shown tips, so that each is shown once and credited, and is no evidence."""
        tips = advice.tips
        if (recorded := self._recorded) is not None:
            tips = tuple([renamed(tip, recorded, self._names) for tip in tips])
        advice = advice._replace(tips=tips, nonce=self.nonce)
        lines = [line.strip() for tip in advice.tips for line in tip.text.split("\n")]
        self._ledger.show(about, advice.ids, advice.withheld, lines)
        self._ledger.shown.update(tip.key for tip in advice.tips if tip.key)
        self._brought.update(part for tip in advice.tips for part in tip.brings)
        if any(tip.source in WAYS_OUT for tip in advice.tips):
            self._led_out = self._history.failed
        for hear in self._fleet.on_advice:
            hear(self._session, advice)
        return advice
