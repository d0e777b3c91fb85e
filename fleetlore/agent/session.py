"""Hold one attempt at a goal: what the agent does is recorded, and it is told what the fleet knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetlore.advice.advice import INTRODUCTION, MAX_CHARS, MAX_TIPS, Advice, advise, chosen, warn
from fleetlore.advice.changes import holds, is_own, item_tip
from fleetlore.advice.gate import Tip
from fleetlore.advice.provenance import fence_name
from fleetlore.advice.situation import Situation
from fleetlore.advice.sources import WAYS_OUT
from fleetlore.agent.recording import Recording, asked
from fleetlore.calls.failed_call import FailedCall
from fleetlore.calls.features import Call
from fleetlore.calls.model import CallModel
from fleetlore.calls.model import Outlook as Foreseen
from fleetlore.fingerprint.fingerprint import arguments_text
from fleetlore.recall.index import is_recalled
from fleetlore.risk.outlook import Outlook
from fleetlore.stats.hashing import stable_hash
from fleetlore.store.search import SEARCH_SECONDS

if TYPE_CHECKING:  # torch comes with the extra [adapters]
    from fleetlore.risk.model import Risk

__all__ = ["Session"]

# Items of a search: what is asked for is read, where advice comes unasked.
RECALLED = 5


class Session(Recording):
    """One attempt at a goal: an async context manager, made by `Fleet.session`. See `Recording` for what is sent."""

    _recognised: tuple[CallModel, int, str | None] | None = None
    # The failure whose way out was shown.
    _led_out: FailedCall | None = None

    @property
    def introduction(self) -> str:
        """How to read the advice of this session: constant, for the system message, before any of it."""
        return INTRODUCTION.format(name=fence_name(self._nonce))

    def advise(
        self,
        tool: str | None = None,
        arguments: object = None,
        *,
        call_id: str = "",
        unseen: bool = True,
        most: int = MAX_TIPS,
        max_chars: int = MAX_CHARS,
    ) -> Advice:
        """What the fleet knows about a call that is about to be made, or without one about the task. No network.

        Mostly nothing: before a call one line where it will likely fail; after a failure at most one way out, until a
        call of the same tool works; at the start what `brief` says.

        Args:
            call_id: of the call, as a model's API gives it, where several calls run side by side.
            unseen: leave out what the session was shown before. An agent that keeps no context takes False.
            most: tips at the most. More is not better: what is shown without need misleads.
            max_chars: of the text; what is least important is left out.
        """
        with self._locked():
            at = self._situation(tool, arguments, (), unseen)
            cautions = self.cautions() if tool is None else (*self.cautions(), *self._safety.cautions(tool, arguments))
            found = advise(
                self._fleet.replica.index, at, cautions, holdout_share=self._share, most=most, max_chars=max_chars
            )
            return self._show(found, asked(call_id, tool, arguments))

    def brief(
        self, tools: Sequence[str] = (), *, unseen: bool = True, most: int = MAX_TIPS, max_chars: int = MAX_CHARS
    ) -> Advice:
        """What to tell a model before it chooses a call: what the place has, what got others past the failures of its
        tools, and the way that solved this very goal. The other arguments are those of `advise`.

        Args:
            tools: names of the tools that it may call; of others nothing is said.
        """
        with self._locked():
            at = self._situation(None, None, tuple(tools), unseen)
            index, cautions = self._fleet.replica.index, self.cautions()
            return self._show(
                advise(index, at, cautions, holdout_share=self._share, most=most, max_chars=max_chars), ""
            )

    def hold(self, tool: str, arguments: object = None) -> Advice | None:
        """What to answer in place of making a call that will fail, once a call; None where it is to be made.

        Never of a call that holds what a tip said to use. Which calls are held is the setting `hold`
        (`FLEETLORE_HOLD`). A held call is not recorded: nothing happened.
        """
        hold = self._fleet.settings.hold
        if hold == "off":
            return None
        with self._locked():
            text = arguments_text(arguments)
            if (tool, text) in self._held or any(holds(arguments, (part,)) for part in self._brought):
                return None
            at = self._situation(tool, arguments, (), unseen=False)
            advice = warn(self._fleet.replica.index, at, holdout_share=self._share)
            if not advice or not (advice.sure or hold == "always"):
                return None
            self._held.add((tool, text))
            # Of the session as a whole: the call that is made next comes under another id.
            return self._show(advice._replace(held=True), "")

    async def recall(self, text: str, most: int = RECALLED, *, timeout_seconds: float = SEARCH_SECONDS) -> Advice:
        """Search all that the fleet's store holds for a text: a goal, an error, a question. The best match first.

        Advice is looked up in what the agent's own memory holds; this asks Milvus (`FLEETLORE_MILVUS`, or that of
        `data=`), for a tenant that knows more. Like other advice it leaves out what the session alone has taught,
        withholds a share at random, and is credited with the outcome.

        Args:
            most: items at the most, the withheld ones among them.
            timeout_seconds: after so long it gives up.

        Raises:
            NotOpen: the session was not entered, was left, or was entered before a fork.
            ModelUnavailable: the extra `[recall]` is not installed.
            ConfigError: no worker has written to the store yet, or one of an earlier version.
            StoreUnavailable: Milvus does not answer within the time.
        """
        self._lifetime.check()
        found = await self._fleet.lore_search.items(text, least=most, timeout_seconds=timeout_seconds)
        replica = self._fleet.replica
        shown = [
            item for _, item in found if is_recalled(item) and replica.tells(item) and not replica.index.hides(item)
        ]
        tips = [item_tip(item, "searched") for item in shown if not is_own(item, self.id)]
        agent = stable_hash(self._fleet.agent)
        at = Situation(now=self._fleet.clock.now(), agent=agent, session=self.id)
        with self._locked():
            return self._show(chosen(replica.index, tips, at, holdout_share=self._share, most=most), "")

    def outlook(self, calls: Sequence[tuple[str, object]]) -> list[Outlook | None]:
        """What is foreseen of calls (tool, arguments) that may come next. No I/O; some 2 ms for eight.

        It is the call model's word; with `adapters=True` the network's as well, at the tools where it was shown to add
        to that, or that the call model does not know. None for a call that nothing can be told of.
        """
        risk_model = self._fleet.risk_model
        with self._locked():
            line = [self._line(*call) for call in calls]
            if risk_model is None:
                return [None if chance is None else Outlook(chance) for chance in line]
            return risk_model.outlook(list(self._made), self.goal, calls, line)

    def risk(self, tool: str, arguments: object = None) -> Risk | None:
        """A warning of a call that will rather fail by `outlook`, with the failure that it looks like to the adapter in
        use and what the fleet says about that; None of others, and where that adapter cannot tell.
        """
        risk_model = self._fleet.risk_model
        if risk_model is None:
            return None
        with self._locked():
            line = self._line(tool, arguments)
            return risk_model.risk(list(self._made), self.goal, tool, arguments, self._hint, line)

    def cautions(self) -> tuple[Tip, ...]:
        """What the session itself gives cause to warn of now: a budget that runs out, a standstill. Also part of
        advice.

        For whoever watches over an agent that does not ask.
        """
        with self._locked():
            return self._watchdog.cautions(self._fleet.clock.monotonic())

    def cite(self, id: str) -> bool:
        """Say that something the session was shown (`Advice.ids`) is being used; the next outcome names it. False
        where nothing was shown so.
        """
        with self._locked():
            return self._advice_ledger.cite(id)

    @property
    def _share(self) -> float:
        """Of what would be shown, the share that is withheld."""
        return self._fleet.settings.holdout_share

    def _situation(self, tool: str | None, arguments: object, tools: tuple[str, ...], unseen: bool) -> Situation:
        """All that advice depends on beside the lore."""
        self._fleet.check_lore()
        for each in tools if tool is None else (tool,):
            self._fleet.replica.uses(each)
        model = self._fleet.call_model
        at = Situation(
            tool,
            arguments,
            tools=tools,
            now=self._fleet.clock.now(),
            task=self.task,
            goal=self.goal,
            agent=stable_hash(self._fleet.agent),
            session=self.id,
            own_failures=self._own_failures,
            failed=self._failed,
            led_out=unseen and self._failed is self._led_out,
            preconditions=self._preconditions,
            model=model,
            context=self._context,
            place=self._place(model),
            own=self._own_expected,
            shown=self._advice_ledger.shown if unseen else (),
        )
        if at.call is not None and model is not None:
            at.outlook = self._outlook(model, at.call, at)
        return at

    def _show(self, advice: Advice, asked: str) -> Advice:
        """Note what is shown, so that it is shown once, credited with the outcome and no evidence of its own."""
        advice = advice._replace(nonce=self._nonce)
        lines = [line.strip() for tip in advice.tips for line in tip.text.split("\n")]
        self._advice_ledger.show(asked, advice.ids, advice.withheld, lines)
        self._advice_ledger.shown.update(tip.key for tip in advice.tips if tip.key)
        self._brought.update(part for tip in advice.tips for part in tip.brings)
        if any(tip.source in WAYS_OUT for tip in advice.tips):
            self._led_out = self._failed
        for hear in self._fleet.on_advice:
            hear(self.id, advice)
        return advice

    def _outlook(self, model: CallModel, call: Call, at: Situation) -> Foreseen | None:
        """What the call model foresees; with what the network makes of it, where that adds to it."""
        outlook, risk_model = model.outlook(call, self._context, at.place), self._fleet.risk_model
        if outlook is None or risk_model is None or not risk_model.adds_to(call.tool, self._context.state):
            return outlook
        (seen,) = risk_model.outlook(list(self._made), self.goal, [(call.tool, at.arguments)], [outlook.fails])
        return outlook if seen is None else outlook._replace(fails=seen.fails)

    def _line(self, tool: str, arguments: object) -> float | None:
        """P(the call fails) by the call model; None where it does not know the tool, or there is none."""
        model = self._fleet.call_model
        if model is None or not model.knows(tool):
            return None
        call = Call.made(tool, arguments_text(arguments))
        outlook = model.outlook(call, self._context, self._place(model))
        return None if outlook is None else outlook.fails

    def _place(self, model: CallModel | None) -> str | None:
        """Where the session is: as it said, or as its words tell where that is sure."""
        if self.place or model is None:
            return self.place or None
        if self._recognised is None or self._recognised[:2] != (model, self._context.calls):
            self._recognised = model, self._context.calls, model.places.recognise(self._context)
        return self._recognised[2]

    def _hint(self, pattern: str) -> str | None:
        index, at = self._fleet.replica.index, self._situation(None, None, (), unseen=False)
        tips = [item_tip(item, "got past") for item in index.recoveries(pattern)]
        return next((tip.text for tip in chosen(index, tips, at, holdout_share=0.0, most=1).tips), None)
