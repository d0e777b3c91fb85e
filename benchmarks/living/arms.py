"""Make the texts of a session, arm by arm. The past is the same for all.

`none` · `ours` · `curated`: hints written by hand from the schema alone, four a database · `both`: these
beside what the fleet learned · `placebo`: what fleetlore says at another place, as long and at the same moments ·
`names`: names of the place that its past holds, flat, with no other words · `raw`: the nearest past sessions as they
were · `bank`: ReasoningBank's way · `look first`: the agent's own code looks the schema up, where a call shows it ·
`full`: the whole schema or the docs, which a user could add by hand. All arms learn from the whole results of the past.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.living.agent import AtStart, LooksFirst, Played, Silent, Told
from benchmarks.living.llm.model import Model
from benchmarks.living.past import Lore, Ours
from benchmarks.living.world import Call, Ran, Task, World, drawn, names
from fleetlore.recall.encoder import shared_encoder

HINTS = Path(__file__).parents[1] / "data" / "curated_hints.jsonl"
Moment = Literal["start", "before", "after"]

NAMES_CHARACTERS = 600
# Two whole sessions fit, with the schema that one of them looked up, and a third of the model's context is left.
RAW_CHARACTERS = 6_000
RAW_SESSIONS = 2
BANK_CHARACTERS = 6_000
_BANK_SYSTEM = """You distil what can be learned from an agent's session, for other agents at similar tasks. \
Write at most three memory items. Each is one line: a title, a colon, and one or two sentences of advice that hold \
beyond this task. Say what to do, or what to avoid; quote no answer."""
_BANK_GRAMMAR = 'root ::= item item? item?\nitem ::= "- " [A-Za-z] [^\\n]{20,300} "\\n"\n'
_BANK_TOKENS = 200


class Arms:
    """Makes the texts of a session, by an arm's name: `make[name](task, id)`."""

    def __init__(self, world: World, past: Sequence[Played], model: Model, seed: int) -> None:
        self._world = world
        self._past = past
        self._model = model
        self._seed = seed
        make: dict[str, Callable[[Task, str], Told]] = {
            "none": lambda task, id: Silent(),
            "ours": lambda task, id: self._lore.told(task, id),
            "curated": lambda task, id: self._curated.told(task, id),
            "both": lambda task, id: self._both.told(task, id),
            # Find the text of the other group first: an open session would get the note that it waits.
            "placebo": lambda task, id: Placebo(self._said, self._lore.told(task, id), task, seed),
            "names": lambda task, id: AtStart(self._names(task)),
            "raw": lambda task, id: AtStart(self._raw(task)),
            "bank": lambda task, id: AtStart(self._bank(task)),
            "full": lambda task, id: AtStart(world.in_full(task)),
        }
        if (first := world.first_look) is not None:
            make["look first"] = lambda task, id: LooksFirst(first, whole=True)
        self.make: Mapping[str, Callable[[Task, str], Told]] = make

    @cached_property
    def _lore(self) -> Lore:
        return Lore(self._world, self._past, self._seed)

    @cached_property
    def _curated(self) -> Lore:
        return Lore(self._world, (), self._seed, hints=HINTS)

    @cached_property
    def _both(self) -> Lore:
        return Lore(self._world, self._past, self._seed, hints=HINTS)

    @cached_property
    def _said(self) -> dict[Moment, list[tuple[str, str]]]:
        """(group, text) of what fleetlore says at tasks of the past, by moment."""
        found: defaultdict[Moment, dict[tuple[str, str], None]] = defaultdict(dict)
        for played in self._past:
            told = self._lore.told(played.task, f"placebo/{played.task.id}")
            group = played.task.group
            found["start"][group, told.start()] = None
            for step in played.steps:
                found["before"][group, told.before(step.call)] = None
                found["after"][group, told.after(step.call, step.ran)] = None
            told.end(played.solved)
        return {moment: [each for each in texts if each[1]] for moment, texts in found.items()}

    def _names(self, task: Task) -> str:
        """Those that there are, by how many sessions of the past held them in a call that worked or its result."""
        there = names(self._world.in_full(task))
        held: Counter[str] = Counter()
        for played in self._past:
            if played.task.place == task.place:
                worked = [f"{step.call.text}\n{step.ran.returned}" for step in played.steps if not step.ran.error]
                held.update(names("\n".join(worked)) & there)
        text = ""
        for name, _ in sorted(held.items(), key=lambda each: (-each[1], each[0])):
            if len(text) + len(name) > NAMES_CHARACTERS:
                break
            text += f", {name}" if text else name
        return f"Names that worked here for other agents: {text}" if text else ""

    @cached_property
    def _goals(self) -> np.ndarray:
        return shared_encoder().encode([_key(each.task) for each in self._past])

    def _nearest(self, task: Task, most: int) -> list[Played]:
        near = self._goals @ shared_encoder().encode([_key(task)])[0]
        near = near + np.array([each.task.place == task.place for each in self._past])
        return [self._past[int(place)] for place in np.argsort(-near, kind="stable")[:most]]

    def _raw(self, task: Task) -> str:
        episodes = [episode(each)[: RAW_CHARACTERS // RAW_SESSIONS] for each in self._nearest(task, RAW_SESSIONS)]
        return "Earlier sessions of other agents:\n" + "\n".join(episodes) if episodes else ""

    def _bank(self, task: Task) -> str:
        """Items that the model itself distilled from the session with the nearest goal (Ouyang et al. 2025)."""
        for nearest in self._nearest(task, 1):
            messages = [("system", _BANK_SYSTEM), ("user", episode(nearest)[:BANK_CHARACTERS])]
            items = self._model.ask(messages, grammar=_BANK_GRAMMAR, temperature=0.0, seed=0, most=_BANK_TOKENS)
            return f"What earlier sessions teach:\n{items.text.strip()}"
        return ""


ARMS = ("none", "ours", "curated", "both", "placebo", "names", "raw", "bank", "look first", "full")


class Placebo:
    """Gives text of another group, as long as fleetlore's and at the same moments."""

    once = False
    first: Call | None = None
    whole = False

    def __init__(self, said: Mapping[Moment, Sequence[tuple[str, str]]], ours: Ours, task: Task, seed: int) -> None:
        self._said = said
        self._ours = ours
        self._task = task
        self._seed = seed
        self._times = 0

    def start(self) -> str:
        return self._instead("start", self._ours.start())

    def before(self, call: Call) -> str:
        return self._instead("before", self._ours.before(call))

    def after(self, call: Call, ran: Ran) -> str:
        return self._instead("after", self._ours.after(call, ran))

    def end(self, solved: bool) -> None:
        self._ours.end(solved)

    def _instead(self, moment: Moment, text: str) -> str:
        others = [said for group, said in self._said.get(moment, ()) if group != self._task.group and said != text]
        if not text or not others:
            return ""
        self._times += 1
        other = others[drawn(self._seed, "placebo", self._task.id, str(self._times)) % len(others)]
        return (other * (len(text) // len(other) + 1))[: len(text)]


def episode(played: Played) -> str:
    """A session as it was, with whole results."""
    lines = [played.task.asked]
    for step in played.steps:
        lines.append(str(step.call))
        lines.append(f"  {'Error: ' if step.ran.error else ''}{step.ran.returned}")
    return "\n".join([*lines, "The task was " + ("solved." if played.solved else "not solved.")])


def _key(task: Task) -> str:
    return f"{task.place} {task.goal}"
