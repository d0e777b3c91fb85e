"""Play the past of a living fleet: its sessions, and what fleetlore makes of them.

The sessions are played by the model that is measured. Half of its agents look at the schema first, by their own code,
or have the docs if no call shows them: a model of this size finds no way out alone. The others get no text.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from benchmarks.living.agent import AtStart, LooksFirst, Played, Silent, Told, play
from benchmarks.living.llm.model import WORKERS, Model
from benchmarks.living.world import Call, Ran, Task, World, drawn
from fleetlore.advice.decide import Draft, write
from fleetlore.agent.session import Session
from fleetlore.calls.model import CallModel
from fleetlore.wire.events import Event
from models.calls.training import CallTraining
from streams.offline.memory_pipeline import MemoryPipeline

AGENTS = 4
# In place of the fence's own digits, which are drawn anew for each session: an answer is kept by its prompt.
_DIGITS = re.compile(r"(</?fleet-memory) [0-9a-f]{8}")
PINNED = r"\1 5f0c11d2"


def play_past(world: World, tasks: Sequence[Task], model: Model, seed: int) -> list[Played]:
    """The sessions, in the order of the tasks."""

    def one(task: Task) -> Played:
        told: Told = Silent()
        if drawn(seed, "looks", task.id) % 2 == 0:
            first = world.first_look
            told = AtStart(world.in_full(task)) if first is None else LooksFirst(first, whole=False)
        return play(world, task, model, told, seed_of(seed, task))

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(one, tasks))


def seed_of(seed: int, task: Task, draw: int = 0) -> int:
    """The seed of one of the model's draws at a task, the same in every arm."""
    return (drawn(seed, "draws", task.id) + 1_000 * draw) % 2**31


class Lore:
    """The fleet after its past: all stages of the pipeline and the call model, in memory."""

    def __init__(self, world: World, past: Sequence[Played], seed: int, hints: Path | None = None) -> None:
        """`hints`: drafts that a person wrote, one a line, as the relay's `POST /v1/hints` takes them."""
        self._world = world
        self._pipeline = MemoryPipeline()
        training = CallTraining()

        async def learn() -> None:
            for played in past:
                emitted: list[Event] = []
                agent = f"coder-{drawn(seed, 'agent', played.task.id) % AGENTS}"
                session = self._session(agent, played.task, f"past/{played.task.id}", emitted)
                with session:
                    for step in played.steps:
                        record(world, session, step.call, step.ran)
                    end(session, played.solved)
                for trajectory in await self._pipeline.take(emitted):
                    training.learn(trajectory)

        asyncio.run(learn())
        for number, line in enumerate(hints.read_bytes().splitlines() if hints is not None else ()):
            draft = msgspec.json.decode(line, type=Draft)
            self._pipeline.index.put_hint(write(self._pipeline.index, draft, by="curator", now=1.0 + number))
        self._pipeline.call_model = CallModel.from_bytes(training.version().weights)

    def told(self, task: Task, id: str) -> Ours:
        return Ours(self._world, self._session("newcomer", task, id, []))

    def _session(self, agent: str, task: Task, id: str, emitted: list[Event]) -> Session:
        return self._pipeline.session(agent, task.goal, task.place, id, emitted, place=task.place)


class Ours:
    """The advice of fleetlore for a session: see docs/guide/agents.md."""

    once = False
    first: Call | None = None
    whole = False

    def __init__(self, world: World, session: Session) -> None:
        self._world = world
        self._session = session
        session.__enter__()

    def start(self) -> str:
        return pinned(self._session.brief(tools=self._world.tools).text)

    def before(self, call: Call) -> str:
        return pinned(self._session.advise(call.tool, {self._world.argument: call.text}).text)

    def after(self, call: Call, ran: Ran) -> str:
        record(self._world, self._session, call, ran)
        return pinned(self._session.advise().text) if ran.error else ""

    def end(self, solved: bool) -> None:
        end(self._session, solved)
        self._session.__exit__(None, None, None)


def record(world: World, session: Session, call: Call, ran: Ran) -> None:
    with session.action(call.tool, {world.argument: call.text}) as action:
        if ran.error:
            action.fail(ran.error, ran.said)
        else:
            action.result = ran.returned


def end(session: Session, solved: bool) -> None:
    if solved:
        session.succeed(reward=1.0)
    else:
        session.fail(reward=0.0)


def pinned(text: str) -> str:
    """The text with the same digits in its fence each time."""
    return _DIGITS.sub(PINNED, text)
