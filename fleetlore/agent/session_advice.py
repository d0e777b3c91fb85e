"""Ask for a session what the fleet knows and foresees, and note what it is shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from fleetlore.advice.advice import Advice, advise, chosen, warn
from fleetlore.advice.changes import holds, is_own, item_tip
from fleetlore.advice.gate import PROVEN, Tip
from fleetlore.advice.provenance import AdviceLedger
from fleetlore.advice.situation import FailedCall, Situation
from fleetlore.advice.sources import WAYS_OUT
from fleetlore.calls.context import CallContext, text_of
from fleetlore.calls.features import Call
from fleetlore.calls.model import CallModel, Expected, Outlook
from fleetlore.fingerprint.fingerprint import Failure, arguments_text
from fleetlore.fingerprint.names import failure_kind
from fleetlore.recall.index import is_recalled
from fleetlore.wire.lore import MemoryItem

if TYPE_CHECKING:
    from fleetlore.agent.action import Action, BegunCall
    from fleetlore.agent.fleet import Fleet
    from fleetlore.agent.session_events import SessionOptions

__all__ = ["CallHistory", "SessionAdvice"]

_KEPT_CALLS = 32


class CallHistory:
    """What the calls of one session met, those that ended only: what advice is made of.

    Attributes:
        calls, errors: how many calls ended so far, and how many of them failed.
        failures: ids of the exact patterns that were met.
        failed: the call that failed last, as long as no call of its tool has worked since.
        expected: what failed, as the call model names it.
    """

    def __init__(self, goal: str) -> None:
        self.calls = self.errors = 0
        self.failures: set[str] = set()
        self.failed: FailedCall | None = None
        self.expected: deque[Expected] = deque(maxlen=_KEPT_CALLS)
        self.context = CallContext(goal)

    def record(self, action: Action, call: BegunCall, result: str, failure: Failure | None) -> None:
        """Take in a call that ended. `result`: as text; `failure`: None where it worked."""
        tool, error = action.tool, action.error
        said = (error[1] or error[0]) if error else result
        self.calls += 1
        self.context.record(tool, text_of(call.text), said, failure and failure.family, arguments=call.text)
        if failure is not None and error is not None:
            self._record_failure(action, call, error, failure)
            return
        if self.failed is not None and self.failed.failure.tool == tool:
            self.failed = None

    def _record_failure(self, action: Action, call: BegunCall, error: tuple[str, str], failure: Failure) -> None:
        text, (kind, message) = text_of(call.text), error
        self.errors += 1
        self.failures.add(failure.exact)
        known = failure_kind(failure.error_class, failure.template, message, text)
        # What the session itself met may be said to it.
        self.expected.append(Expected(known.kind, known.names, agents=PROVEN))
        context = self.context
        self.failed = FailedCall(
            text,
            message or kind,
            failure,
            context.seen | context.worked,
            call.text,
            tuple(context.objects.marks(call.text)),
        )


class SessionAdvice:
    """What one session is shown, and what is foreseen of its calls. The fleet's lock is held by the caller.

    It does not know its `Session`: in a reference cycle all that a session held would stay until the garbage collector
    finds it, which stops a process of many sessions for a tenth of a second.

    Args:
        session: id of the session.

    Attributes:
        nonce: of the fence around its advice.
    """

    def __init__(
        self, fleet: Fleet, options: SessionOptions, session: str, history: CallHistory, ledger: AdviceLedger
    ) -> None:
        self._fleet, self._options, self._session = fleet, options, session
        self._history, self._ledger = history, ledger
        self.nonce = self._fleet.new_nonce()
        # Calls that were held, what tips said to use, and the failure whose way out was shown.
        self._held: set[tuple[str, str]] = set()
        self._brought: set[str] = set()
        self._led_out: FailedCall | None = None
        self._recognised: tuple[CallModel, int, str | None] | None = None

    def at(self, tool: str | None, arguments: object, tools: tuple[str, ...] = (), *, unseen: bool) -> Situation:
        """All that advice depends on beside the lore.

        Args:
            tool, arguments: of the call that is asked about; None without one.
            tools: that may be called next, without one.
            unseen: leave out what was shown before.
        """
        fleet, options, history = self._fleet, self._options, self._history
        fleet.check_lore()
        for each in tools if tool is None else (tool,):
            fleet.replica.uses(each)
        at = Situation(
            tool,
            arguments,
            tools=tools,
            now=fleet.clock.now(),
            task=options.task,
            goal=options.goal,
            session=self._session,
            own_failures=history.failures,
            failed=history.failed,
            led_out=unseen and history.failed is self._led_out,
            model=fleet.call_model,
            context=history.context,
            place=self._place(),
            own=history.expected,
            shown=self._ledger.shown if unseen else (),
            retrieval=fleet.retrieval,
            quorum=fleet.settings.quorum,
            closed_tools=fleet.settings.closed_tools,
        )
        if at.call is not None:
            at.outlook = self._outlook(at.call)
        return at

    def advise(self, at: Situation, cautions: Sequence[Tip], most: int, max_chars: int, *, about: str = "") -> Advice:
        """See `Session.advise`. `about`: what is asked about (`fleetlore.agent.session_events.asked`)."""
        began = perf_counter()
        found = advise(
            self._fleet.replica.index, at, cautions, holdout_share=self._share, most=most, max_chars=max_chars
        )
        shown = self._show(found, about)
        self._fleet.count_advice(shown, perf_counter() - began)
        return shown

    def hold(self, tool: str, arguments: object) -> Advice | None:
        """See `Session.hold`."""
        text = arguments_text(arguments)
        if (tool, text) in self._held or any(holds(arguments, (part,)) for part in self._brought):
            return None
        at = self.at(tool, arguments, unseen=False)
        advice = warn(self._fleet.replica.index, at, holdout_share=self._share)
        if not advice or not (advice.sure or self._fleet.settings.hold == "always"):
            return None
        self._held.add((tool, text))
        # Of the session as a whole: the call that is made next comes under another id.
        return self._show(advice._replace(held=True), "")

    def found(self, items: Sequence[MemoryItem], most: int) -> Advice:
        """What a search of the store found, the best match first, without what the session may not be shown."""
        replica, session = self._fleet.replica, self._session
        told = [item for item in items if is_recalled(item) and not replica.index.hides(item)]
        tips = [item_tip(item, "searched") for item in told if not is_own(item, session)]
        at = Situation(now=self._fleet.clock.now(), session=session, quorum=self._fleet.settings.quorum)
        return self._show(chosen(replica.index, tips, at, holdout_share=self._share, most=most), "")

    def outlook(self, calls: Sequence[tuple[str, object]]) -> list[Outlook | None]:
        """See `Session.outlook`."""
        return [self._outlook(Call.made(tool, arguments_text(arguments))) for tool, arguments in calls]

    def _place(self) -> str | None:
        """Where the session is: as it said, or as its words tell where that is sure."""
        model, context = self._fleet.call_model, self._history.context
        if self._options.place or model is None:
            return self._options.place or None
        if self._recognised is None or self._recognised[:2] != (model, context.calls):
            self._recognised = model, context.calls, model.places.recognise(context)
        return self._recognised[2]

    def _outlook(self, call: Call) -> Outlook | None:
        """None where the call model does not know the tool, or there is none."""
        model = self._fleet.call_model
        return None if model is None else model.outlook(call, self._history.context, self._place())

    @property
    def _share(self) -> float:
        return self._fleet.settings.holdout_share

    def _show(self, advice: Advice, about: str) -> Advice:
        """Note what is shown, so that it is shown once, credited with the outcome and no evidence of its own."""
        advice = advice._replace(nonce=self.nonce)
        lines = [line.strip() for tip in advice.tips for line in tip.text.split("\n")]
        self._ledger.show(about, advice.ids, advice.withheld, lines)
        self._ledger.shown.update(tip.key for tip in advice.tips if tip.key)
        self._brought.update(part for tip in advice.tips for part in tip.brings)
        if any(tip.source in WAYS_OUT for tip in advice.tips):
            self._led_out = self._history.failed
        for hear in self._fleet.on_advice:
            hear(self._session, advice)
        return advice
