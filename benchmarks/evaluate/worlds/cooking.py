"""Wrap CookingWorld of TextWorldExpress (package `textworld-express`, Apache-2.0): cook a meal by the recipe; a wrong
cut or the wrong heat spoils it for good.

Others wrote the game, its texts and its checker; this adapter only proposes commands. A session is one generated game.
The gold actions are the game's own. What an agent can think of at a place: the next gold actions (later ones may not be
possible yet), and commands that the game says are possible now; it is the likelier to want one, the more of its words
one line of the task or the recipe names. It knows what a cook knows without a memory: what is roasted goes into the
oven, what is fried on the stove.

A command is a call: `cook potato in oven` is the tool `cook` with `object` and `place`. An error is a command that the
game does not take, or the one that ruins the meal; after that the session is over.

Java 17 or newer must be installed (Debian: default-jre-headless), and

    pip install textworld-express==1.1.0
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any

from benchmarks.evaluate.worlds.world import Call, Proposal, Reply, Task
from fleetlore.errors import ModelUnavailable

HOW = "the world cooking needs: pip install textworld-express==1.1.0"
NEEDS_JAVA = "the world cooking needs Java 17 or newer (Debian: apt-get install default-jre-headless)"
GAME = "cookingworld"
KITCHENS = ("numLocations=1,numIngredients=2", "numLocations=1,numIngredients=4", "numLocations=3,numIngredients=3")
NEW_KITCHENS = ("numLocations=5,numIngredients=4",)
COMMON = "numDistractorItems=4,includeDoors=0,limitInventorySize=0"
ENGINE_STEPS = 500
PROPOSED = 8
READS = 20.0
SLACK = 3.0
MAX_RESULT = 300
HEATS = {"oven": "roast", "stove": "fry", "toaster": "grill", "barbeque": "grill", "barbecue": "grill"}
REFUSED = ("i'm not sure", "i don't understand", "you can't", "can't", "not possible", "unknown action", "you need to")


class CookingSession:
    """One game. All sessions share one engine, so only the one opened last can be played."""

    def __init__(self, parameters: str, number: int, seed: str) -> None:
        self._engine = _engine()
        self._engine.load(gameName=GAME, gameParams=f"{parameters},{COMMON}")
        self._infos: Mapping[str, Any]
        _, self._infos = self._engine.reset(seed=number, gameFold="train", generateGoldPath=True)
        self._left = [_call(action) for action in self._engine.getGoldActionSequence()]
        self._seed = f"{parameters}/{number}/{seed}"
        self._turn = _Turn.next()
        self._recipe = ""
        self.calls = 0
        self.shortest = len(self._left)
        self.budget = int(SLACK * self.shortest)
        self.goal = str(self._infos["taskDescription"])

    @property
    def aim(self) -> str:
        return f"{self.goal} {self._recipe}"

    @property
    def progress(self) -> int:
        return self.shortest - len(self._left)

    @property
    def succeeded(self) -> bool:
        return bool(self._infos["tasksuccess"])

    @property
    def done(self) -> bool:
        return self.succeeded or bool(self._infos["taskfailure"]) or self.calls >= self.budget

    def proposals(self) -> Sequence[Proposal]:
        rng = Random(f"{self._seed}/{self.calls}")
        possible = [_call(action) for action in sorted(self._infos["validActions"])]
        calls = {call.key: call for call in self._left[:3]}
        for call in rng.sample(possible, len(possible)):
            if len(calls) >= PROPOSED:
                break
            calls.setdefault(call.key, call)
        lines = _lines(self.aim)
        proposals = [Proposal(call, READS ** _named(call, lines)) for call in calls.values()]
        rng.shuffle(proposals)
        return proposals

    def perform(self, call: Call) -> Reply:
        if self.done or self._turn != _Turn.now:
            raise RuntimeError("the session is done, or another one has been opened since: no call can be performed")
        self.calls += 1
        observation, _, _, self._infos = self._engine.step(_command(call))
        text = str(observation).strip()[:MAX_RESULT]
        if self._infos["taskfailure"]:
            return Reply("", "TaskFailure", text, f"ruined:{call.tool}")
        if text.casefold().startswith(REFUSED):
            if self._left and call.key == self._left[0].key:
                del self._left[0]  # some gold actions lead to nothing once others are done
            return Reply("", "NotPossible", text, f"refused:{call.tool}")
        if call.tool == "read":
            self._recipe = text
        made = next((place for place, each in enumerate(self._left[:3]) if each.key == call.key), None)
        if made is not None:
            del self._left[made]
        return Reply(text)

    def solve(self) -> Call:
        # Whoever did later gold actions first may stand where no gold action is left.
        return self._left[0] if self._left else self.proposals()[0].call


class CookingWorld:
    """Games drawn by a seed. Raises ModelUnavailable where the package or Java is missing."""

    name = "cooking"
    epochs = 1

    def __init__(self, seed: int, *, tasks: int = 48, kitchens: Sequence[str] = KITCHENS) -> None:
        _engine()
        self._seed = seed
        rng = Random(f"cooking/{seed}")
        self._games = {
            f"{number:03d}": (kitchens[number % len(kitchens)], game)
            for number, game in enumerate(rng.sample(range(1, 1000), tasks))
        }
        self.tasks = [Task(f"{GAME}-{id}", kitchen) for id, (kitchen, _) in self._games.items()]

    def open(self, task: Task, seed: str, epoch: int) -> CookingSession:
        return CookingSession(*self._games[task.id.removeprefix(f"{GAME}-")], seed)

    def parts(self) -> tuple[CookingWorld, CookingWorld]:
        """Small kitchens, and houses."""
        return CookingWorld(self._seed), CookingWorld(self._seed, kitchens=NEW_KITCHENS)


class _Turn:
    """Which session the engine plays."""

    now = 0

    @classmethod
    def next(cls) -> int:
        cls.now += 1
        return cls.now


@lru_cache(maxsize=1)
def _engine() -> Any:
    try:
        from textworld_express import TextWorldExpressEnv
    except ImportError as error:
        raise ModelUnavailable(HOW) from error
    if shutil.which("java") is None:
        raise ModelUnavailable(NEEDS_JAVA)
    return TextWorldExpressEnv(envStepLimit=ENGINE_STEPS)


def close() -> None:
    """Stop the engine, if one runs; the next session starts another."""
    if not _engine.cache_info().currsize:
        return
    engine = _engine()
    process = engine._gateway.java_process
    engine.close()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    process.wait()
    _engine.cache_clear()


def _call(action: str) -> Call:
    """`cook potato in oven` → cook(object="potato", place="oven")."""
    verb, _, rest = action.partition(" ")
    thing, _, place = rest.partition(" in ")
    arguments = {"object": thing} if thing else {}
    return Call(verb, arguments | ({"place": place} if place else {}))


def _command(call: Call) -> str:
    words = [call.tool, call.arguments.get("object", "")]
    if "place" in call.arguments:
        words += ["in", call.arguments["place"]]
    return " ".join(word for word in words if word)


@lru_cache(maxsize=256)
def _lines(aim: str) -> tuple[frozenset[str], ...]:
    """The words of each sentence and line. Of all of them at once every cut of every ingredient would seem to be asked
    for.
    """
    return tuple(
        frozenset(re.findall(r"[a-z]+", line)) for line in re.split(r"[.!?\n]", aim.casefold()) if line.strip()
    )


def _named(call: Call, lines: Sequence[frozenset[str]]) -> float:
    """Share of a command's words that one line names."""
    thing = call.arguments.get("object", "")
    heat = HEATS.get(call.arguments.get("place", "")) if call.tool == "cook" else None
    words = f"{heat} {thing}" if heat else _command(call).replace(" in ", " ")
    wanted = words.casefold().split()
    return max(sum(word in line for word in wanted) for line in lines) / len(wanted)
