"""Play the agent of all arms: it proposes several calls a step, has habits and slips, and may be wrong.

The value of a candidate call c is

    ln weight(c) + habit(c) + mood(c)
        what it would do by itself: habit is Gumbel noise, the same in all sessions of an agent and for calls that
        differ in names only; mood is new each step
    − FRUITLESS × tries(c)
        how often c was made since the last progress and led nowhere; something new that works makes up for what failed
        before it, what worked itself stays counted
    + TRUST × advised(c)
        what the texts say, −1..1 (benchmarks.evaluate.arms.reading); the session's own log is one of them, a story for
        each time it got on
    + ln(1 − P(c fails))
        by the call model; where it abstains, the mean of the others

and it takes the greatest, but for a slip (`SLIP` of the steps), when it takes any. With the policy's term alone the
choice is made by weight × P(works): a policy cannot make an agent do what it deems pointless. Where the policy has
overruled it `PATIENCE` times in a row without progress, the agent follows its own mind once: a critic that is always
obeyed costs success ("Accurate Failure Prediction in Agents Does Not Imply Effective Failure Prevention", 2026). An
error of the network is met by the same call again, in all arms.

Every draw is a hash of (agent, session, step, call), so all arms meet the same luck.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from hashlib import blake2b

from benchmarks.demo.world import NETWORK
from benchmarks.evaluate.arms.memory import Memory, Recall, Situation, within_budget
from benchmarks.evaluate.arms.reading import Story, Told, advised, failure_rate, stories
from benchmarks.evaluate.worlds.recorded import Recorded, step_of
from benchmarks.evaluate.worlds.world import Call, Environment, Proposal, Reply, Task

HABIT = 1.0
MOOD = 0.5
SLIP = 0.1
FRUITLESS = 3.0
TRUST = 2.0
PATIENCE = 3
KEPT_STORIES = 24
# Risks are kept this far from 0 and 1: a policy is never that sure.
SAFEST = 0.02


async def attend(
    agent: str,
    task: Task,
    environment: Environment,
    memory: Memory,
    *,
    session: str,
    luck: str,
    number: int,
    mind: Mind | None = None,
) -> Recorded:
    """Let an agent work on a session until it is done.

    Args:
        session: its id, unique in the run.
        luck: seed of the agent's slips and moods.
        number: place of the session in the run.
        mind: how it decides; None: as the agent of all arms.
    """
    situation = Situation(session, agent, task.id, environment.goal)
    mind = mind or Mind(agent, luck, memory.keeps_log)
    lived: list[tuple[Call, Reply]] = []
    spent, forward = 0.0, 0
    watch = _Timed(environment)
    await memory.begin(situation)
    while not environment.done:
        proposals = environment.proposals()
        situation.aim = environment.aim
        situation.candidates = [proposal.call for proposal in proposals]
        began = time.process_time()
        recall = memory.recall(situation)
        spent += time.process_time() - began
        call = mind.choose(proposals, recall)
        progress = environment.progress
        watched, began = watch.seconds, time.process_time()
        reply = await memory.act(call, watch)
        spent += time.process_time() - began - (watch.seconds - watched)
        advanced = environment.progress > progress
        forward += advanced
        mind.take_in(call, reply, advanced)
        lived.append((call, reply))
        situation.steps.append(step_of(len(lived), call, reply))
    recorded = Recorded(
        id=session,
        agent=agent,
        task=task.id,
        goal=environment.goal,
        number=number,
        steps=tuple(lived),
        succeeded=environment.succeeded,
        shortest=environment.shortest,
        budget=environment.budget,
        forward=forward,
        recall_seconds=spent,
    )
    await memory.end(recorded)
    return recorded


class Mind:
    """How an agent decides within one session."""

    def __init__(self, agent: str, luck: str, keeps_log: bool) -> None:
        self._agent = agent
        self._luck = luck
        self._keeps_log = keeps_log
        self._step = 0
        self._failed: Counter[str] = Counter()  # since something new last worked
        self._made: Counter[str] = Counter()  # what worked since the last progress
        self._failing: set[str] = set()  # tools, since the last progress
        self._story: list[Told] = []  # since the last progress
        self._stories: deque[Story] = deque(maxlen=KEPT_STORIES)
        self._again: Call | None = None
        self._overruled = 0

    def choose(self, proposals: Sequence[Proposal], recall: Recall) -> Call:
        """The next call."""
        self._step += 1
        if self._again is not None:
            return self._again
        calls = [proposal.call for proposal in proposals]
        if _draw(self._luck, str(self._step), "slip") < SLIP:
            return calls[int(_draw(self._luck, str(self._step), "which") * len(calls))]
        values = [own + told for own, told in zip(self.own_values(proposals), self.told(calls, recall), strict=True)]
        own = _greatest(values)
        terms = zip(values, caution(recall.risks, calls), strict=True)
        chosen = _greatest([sum(each) for each in terms])
        self._overruled = self._overruled + 1 if chosen != own else 0
        if self._overruled > PATIENCE:
            self._overruled, chosen = 0, own
        return calls[chosen]

    def told(self, calls: Sequence[Call], recall: Recall) -> list[float]:
        """What its own log and the texts add to the value of each call."""
        notes = within_budget(recall.notes)
        read = [story for note in notes for story in stories(note.text)]
        warned = [(note.about, failure_rate(note.text)) for note in notes if note.about is not None]
        return [TRUST * value for value in advised(read, warned, calls, self._made, self._stories, self._failing)]

    def take_in(self, call: Call, reply: Reply, progress: bool) -> None:
        """Remember, for the rest of the session, what came of a call."""
        self._again = call if reply.fault == NETWORK else None
        if self._again is not None:
            return
        self._story.append(Told(call.tool, call.arguments, not reply.failed))
        if progress:
            if self._keeps_log:
                self._stories.append(tuple(self._story))
            self._story = []
            self._failed.clear()
            self._failing.clear()
            self._made.clear()
            self._overruled = 0
        elif reply.failed:
            self._failed[call.key] += 1
            self._failing.add(call.tool)
        else:
            if call.key not in self._made:
                self._failed.clear()
            self._made[call.key] += 1

    def own_values(self, proposals: Sequence[Proposal]) -> list[float]:
        calls = [proposal.call for proposal in proposals]
        values = []
        for proposal, habit in zip(proposals, _apart(calls), strict=True):
            key = proposal.call.key
            value = math.log(proposal.weight)
            value += HABIT * _gumbel(self._agent, *habit)
            value += MOOD * _gumbel(self._luck, str(self._step), key)
            values.append(value - FRUITLESS * (self._failed[key] + self._made[key]))
        return values


def _apart(calls: Sequence[Call]) -> list[tuple[str, ...]]:
    """What sets each call apart from the others, names and numbers of the session left out."""
    seen: dict[tuple[str, str], set[str]] = defaultdict(set)
    for call in calls:
        for name, value in call.arguments.items():
            seen[call.tool, name].add(repr(value))
    return [
        (call.tool, *(repr(value) for name, value in call.arguments.items() if len(seen[call.tool, name]) > 1))
        for call in calls
    ]


def caution(risks: Sequence[float | None], calls: Sequence[Call]) -> list[float]:
    """ln(1 − P) of each candidate, by P(fails)."""
    known = [risk for risk in risks if risk is not None]
    if not known:
        return [0.0] * len(calls)
    mean = sum(known) / len(known)
    clipped = (min(max(mean if risk is None else risk, SAFEST), 1 - SAFEST) for risk in risks)
    return [math.log(1 - risk) for risk in clipped]


def _greatest(values: Sequence[float]) -> int:
    return max(range(len(values)), key=lambda index: (values[index], -index))


def _draw(*parts: str) -> float:
    """A number in [0, 1) that depends on nothing but `parts`."""
    return int.from_bytes(blake2b("\x1f".join(parts).encode(), digest_size=8).digest()) / 2**64


def _gumbel(*parts: str) -> float:
    return -math.log(-math.log(min(max(_draw(*parts), 1e-12), 1 - 1e-12)))


class _Timed:
    """Performs calls on a session and measures their CPU time: the cost of the world is not overhead of a memory."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.seconds = 0.0

    def perform(self, call: Call) -> Reply:
        began = time.process_time()
        reply = self._environment.perform(call)
        self.seconds += time.process_time() - began
        return reply
