"""Hold one attempt at a goal: what the agent does is recorded, and it is told what the fleet knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fleetlore.agent.recording import Recording, asked
from fleetlore.calls.failed_call import FailedCall
from fleetlore.calls.features import Call
from fleetlore.calls.model import CallModel
from fleetlore.fingerprint.fingerprint import arguments_text
from fleetlore.recall.advice import MAX_CHARS, MAX_ITEMS, Advice, Caution, Situation, advise, told_by
from fleetlore.recall.hints import hint_text
from fleetlore.recall.holdout import withheld
from fleetlore.recall.provenance import new_nonce
from fleetlore.recall.render import fitting, shown_lines
from fleetlore.recall.ways_out import again_id, is_own, way_told
from fleetlore.risk.outlook import Outlook
from fleetlore.store.search import SEARCH_SECONDS
from fleetlore.watch.watchdog import LOOP_CAUTION
from fleetlore.wire.lore import MemoryItem

if TYPE_CHECKING:  # torch comes with the extra [adapters]
    from fleetlore.risk.model import Risk

__all__ = ["Session"]

# Items of a search: what is asked for is read, where advice comes unasked.
RECALLED = 5


class Session(Recording):
    """One attempt at a goal: an async context manager, made by `Fleet.session`. See `Recording` for what is sent."""

    _recognised: tuple[CallModel, int, str | None] | None = None
    # The failure whose way out was told.
    _led_out: FailedCall | None = None

    def advise(
        self,
        tool: str | None = None,
        arguments: object = None,
        *,
        call_id: str = "",
        unseen: bool = True,
        most: int = MAX_ITEMS,
        max_chars: int = MAX_CHARS,
    ) -> Advice:
        """What the fleet knows about a call that is about to be made, or without one about the task. No network.

        Mostly nothing: before a call one line where it will likely fail; after a failure at most one way out, until a
        call of the same tool works; at the start what tells success from failure at the task.

        Args:
            call_id: of the call, as a model's API gives it, where several calls run side by side.
            unseen: leave out what the session was told before. An agent that keeps no context takes False.
            most: memory items at the most. More is not better: what is recalled without need misleads.
            max_chars: of the text; what is least important is left out.
        """
        with self._locked():
            cautions = self.cautions() if tool is None else (*self.cautions(), *self._safety.cautions(tool, arguments))
            return self._advise(tool, arguments, (), asked(call_id, tool, arguments), cautions, unseen, most, max_chars)

    def brief(
        self, tools: Sequence[str] = (), *, unseen: bool = True, most: int = MAX_ITEMS, max_chars: int = MAX_CHARS
    ) -> Advice:
        """What to tell a model before it chooses a call: about the task, and of the tools that it may call what they
        need first and which of them have a passing fault. The other arguments are those of `advise`.

        Args:
            tools: names of the tools that it may call.
        """
        with self._locked():
            return self._advise(None, None, tuple(tools), "", self.cautions(), unseen, most, max_chars)

    async def recall(
        self, text: str, most: int = RECALLED, *, timeout_seconds: float = SEARCH_SECONDS
    ) -> list[MemoryItem]:
        """Search all that the fleet's store holds for a text: a goal, an error, a question. The best match first.

        Advice is looked up in what the agent's own memory holds; this asks Milvus (`FLEETLORE_MILVUS`, or that of
        `data=`), for a tenant that knows more. Like advice it leaves out what the session alone has taught, withholds a
        share at random, and is credited with the outcome. The items are data from other sessions, not instruction.

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
        told = [item for _, item in found if replica.tells(item) and not replica.index.hides(item)]
        chosen = [item for item in told if not is_own(item, self.id)][:most]
        share = self._fleet.settings.holdout_share
        kept_back = [item for item in chosen if item.kind != "fact" and withheld(self.id, item.id, share)]
        shown = [item for item in chosen if item not in kept_back]
        ids = [item.id for item in shown]
        lines = [line for item in shown for line in shown_lines(item.title, item.content)]
        with self._locked():
            self._advice_ledger.show("", tuple(ids), tuple(item.id for item in kept_back), lines)
            self._advice_ledger.told.update(ids)
        return shown

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

    def cautions(self) -> tuple[Caution, ...]:
        """What the session itself gives cause to warn of now: a budget that runs out, a standstill. Also part of
        advice.

        For whoever watches over an agent that does not ask.
        """
        with self._locked():
            return self._watchdog.cautions(self._fleet.clock.monotonic())

    def cite(self, id: str) -> bool:
        """Say that something the session was shown is being used; the next outcome names it. False where nothing was
        shown so.

        Args:
            id: as it stands in the advice's text, with or without its brackets, or an id of `Advice.ids`.
        """
        with self._locked():
            return self._advice_ledger.cite(id)

    def _advise(
        self,
        tool: str | None,
        arguments: object,
        tools: tuple[str, ...],
        asked: str,
        cautions: tuple[Caution, ...],
        unseen: bool,
        most: int,
        max_chars: int,
    ) -> Advice:
        self._fleet.check_lore()
        for each in tools if tool is None else (tool,):
            self._fleet.replica.uses(each)
        model, ledger = self._fleet.call_model, self._advice_ledger
        advice = advise(
            self._fleet.replica.index,
            Situation(
                tool,
                arguments,
                tools=tools,
                now=self._fleet.clock.now(),
                task=self.task,
                goal=self.goal,
                session=self.id,
                own_failures=self._own_failures,
                failed=self._failed,
                led_out=unseen and self._failed is self._led_out,
                loop=self._watchdog.loop,
                preconditions=self._preconditions,
                model=model,
                context=self._context,
                place=self._place(model),
                own=self._own_expected,
                beside=self._beside(tool, arguments),
                told=ledger.told if unseen else (),
            ),
            holdout_share=self._fleet.settings.holdout_share,
            most=most,
        )
        introduced = unseen and bool(ledger.told)
        if advice.way_out is not None or self._is_told_again():
            cautions = tuple([each for each in cautions if each.id != LOOP_CAUTION])
        cautions = tuple([self._with_way(each) for each in cautions])
        if unseen:
            # Of a dangerous call it is warned each time.
            cautions = tuple(
                [each for each in cautions if each.id.startswith("safety:") or each.key not in ledger.told]
            )
        advice = fitting(advice._replace(cautions=cautions, introduced=introduced, nonce=new_nonce()), max_chars)
        lines = [line for item in advice.items for line in shown_lines(item.title, item.content)]
        if advice.way_out is not None:
            lines += shown_lines(advice.way_out.text, "")
        ledger.show(asked, advice.ids, advice.withheld, lines)
        ledger.told.update(told_by(advice))
        if advice.way_out is not None:
            self._led_out = self._failed
        for hear in self._fleet.on_advice:
            hear(self.id, advice)
        return advice

    def _is_told_again(self) -> bool:
        """Whether the session was told that it makes a failing call again and again, which is the loop it is in."""
        loop, failed = self._watchdog.loop, self._failed
        return (
            loop is not None
            and loop.failed
            and loop.kind == "repeat"
            and failed is not None
            and again_id(failed) in self._advice_ledger.told
        )

    def _with_way(self, caution: Caution) -> Caution:
        """The caution; of a loop with where the session was told what solved its task."""
        if caution.id != LOOP_CAUTION:
            return caution
        way = way_told(self._fleet.replica.index, self.task, self._advice_ledger.told)
        return caution if way is None else caution._replace(text=f"{caution.text} {way}")

    def _beside(self, tool: str | None, arguments: object) -> Callable[[float], float] | None:
        """What the network makes of the call model's chance, where it adds to it; else None."""
        risk_model = self._fleet.risk_model
        if risk_model is None or tool is None or not risk_model.adds_to(tool, self._context.state):
            return None

        def both(line: float) -> float:
            (seen,) = risk_model.outlook(list(self._made), self.goal, [(tool, arguments)], [line])
            return line if seen is None else seen.fails

        return both

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
        index = self._fleet.replica.index
        known = index.patterns.get(pattern)
        return None if known is None else hint_text(known, self._fleet.clock.now(), index.recoveries(pattern))
