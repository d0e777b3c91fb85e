"""Let a model work at a task in a few calls, and tell it what an arm says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from benchmarks.living.llm.model import Message, Model
from benchmarks.living.world import Call, Ran, Task, World, parsed

CALLS = 5
TEMPERATURE = 0.3
# Temperature of the second draw after a repeated call: small models repeat themselves for ever.
HOT = 1.0
MOST_TOKENS = 160
MOST_GOAL = 120


class Told(Protocol):
    """The texts of an arm for one session, and their moments.

    Attributes:
        once: it speaks at the start only.
        first: a call that the agent's own code makes before the model is asked, or None.
        whole: the model reads the whole result of `first`; otherwise cut like any other result.
    """

    once: bool
    first: Call | None
    whole: bool

    def start(self) -> str:
        """Before the first call."""
        ...

    def before(self, call: Call) -> str:
        """About a call that is proposed; where it says something the call is held once."""
        ...

    def after(self, call: Call, ran: Ran) -> str:
        """After each call that was made."""
        ...

    def end(self, solved: bool) -> None: ...


class Silent:
    """Says nothing."""

    once = True
    first: Call | None = None
    whole = False

    def start(self) -> str:
        return ""

    def before(self, call: Call) -> str:
        return ""

    def after(self, call: Call, ran: Ran) -> str:
        return ""

    def end(self, solved: bool) -> None:
        return None


class AtStart(Silent):
    """Says one text, at the start."""

    def __init__(self, text: str) -> None:
        self._text = text

    def start(self) -> str:
        return self._text


class LooksFirst(Silent):
    """Says nothing; the agent's code makes one call before the model is asked."""

    def __init__(self, first: Call, *, whole: bool) -> None:
        self.first, self.whole = first, whole


class Step(NamedTuple):
    """A call that was made, and what the model was told about it before (it was held then) and after."""

    call: Call
    ran: Ran
    before: str = ""
    after: str = ""


class Played(NamedTuple):
    """A session.

    Attributes:
        start: what it was told at the start.
        tokens: that the model read and wrote.
    """

    task: Task
    start: str
    steps: tuple[Step, ...]
    tokens: int

    @property
    def solved(self) -> bool:
        return any(each.ran.solved for each in self.steps)


def opening(world: World, task: Task, told: str, first: Call | None = None) -> list[Message]:
    """The text before the model's first call; `first` was made by the agent's code, and its whole result is read."""
    asked = f"{task.asked}\n\n{told}" if told else task.asked
    messages = [("system", world.system), *world.example, ("user", asked)]
    if first is not None:
        messages += [("assistant", str(first)), reply(task, _whole(world.run(task, first)), "", CALLS - 1)]
    return messages


def _whole(ran: Ran) -> Ran:
    return ran._replace(said=ran.returned)


def reply(task: Task, ran: Ran, told: str, left: int, again: bool = False) -> Message:
    """The text after a call; earlier texts (`again`) come first."""
    said = f"Error: {ran.said}" if ran.error else "You have this result already." if again else ran.said
    lines = [said, *([told] if told else [])]
    now = ": hand in now" if left == 1 else ""
    return "user", "\n".join([*lines, f"Task: {task.goal[:MOST_GOAL]} ({left} call{'s' * (left != 1)} left{now})"])


def propose(
    world: World, model: Model, messages: Sequence[Message], seed: int, temperature: float = TEMPERATURE
) -> Call:
    return parsed(world, _asked(world, model, messages, seed, temperature)[0])


def _asked(world: World, model: Model, messages: Sequence[Message], seed: int, temperature: float) -> tuple[str, int]:
    said = model.ask(messages, grammar=world.grammar, temperature=temperature, seed=seed, most=MOST_TOKENS)
    return said.text, said.read + said.written


def play(world: World, task: Task, model: Model, told: Told, seed: int) -> Played:
    start, first = told.start(), told.first
    messages = opening(world, task, start)
    steps: list[Step] = []
    tokens = 0

    def draw() -> Call:
        nonlocal tokens
        for temperature in (TEMPERATURE, HOT):
            text, count = _asked(world, model, messages, seed + len(steps), temperature)
            tokens += count
            call = parsed(world, text)
            if not is_repeated(call):
                break
        return call

    def is_repeated(call: Call) -> bool:
        """A call that worked is handed in by another call."""
        same = [each for each in steps if each.call.folded == call.folded]
        return any(each.ran.error or each.call.tool == call.tool for each in same)

    while len(steps) < CALLS and not (steps and steps[-1].call.tool == world.tools[1] and not steps[-1].ran.error):
        held = ""
        if first is not None and not steps:
            call = first
        else:
            call = draw()
            held = told.before(call)
            if held:
                hold = f"This call was not made yet.\n{held}\nReply with your call, changed or unchanged."
                messages += [("assistant", str(call)), ("user", hold)]
                call = draw()
        again = is_repeated(call)
        ran = world.run(task, call)
        ran = _whole(ran) if told.whole and not steps else ran
        after = told.after(call, ran)
        steps.append(Step(call, ran, held, after))
        messages += [("assistant", str(call)), reply(task, ran, after, CALLS - len(steps), again)]
    played = Played(task, start, tuple(steps), tokens)
    told.end(played.solved)
    return played
