"""Define one session's contribution to a memory item, weigh it, and decide which items are not worth recalling.

near-duplicates   Contributions with the same lesson share one id, whatever their wording.
contradictions    They count on the item itself, and the newer and better backed side wins.
age               A session's weight halves every half-life of event time.
harm, ways        A harmful call, or the calls that reached a goal, need `QUORUM_AGENTS` agents that made them.
"""

from collections.abc import Iterable
from itertools import groupby
from math import fsum
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta
from msgspec.structs import replace

from fleetlore.config import DEFAULT_TENANT
from fleetlore.fingerprint.fingerprint import failure_of, pattern_id
from fleetlore.wire.lore import HOW_TO, ItemKind, MemoryItem
from fleetlore.wire.principals import principal_of
from fleetlore.wire.stats import cached_hash
from fleetlore.wire.trajectory import Count, Hash, JsonStruct, Moment, Trajectory
from fleetlore.words import count
from models.memory.bottom_k import AgentHash

__all__ = ["SEVERAL_GOALS", "SUCCESS_ABOVE", "Candidate", "is_unconfirmed", "item_id", "origin"]

Side = Literal["success", "failure", "withdrawn"]

SUCCESS_ABOVE = 0.8

# Goals that must back a lesson that may hold for one task only.
SEVERAL_GOALS = 2

# Pattern ids are hexadecimal, so none begins like this.
_ITEM_PREFIX = "item"
# Agents that must have made a possibly harmful call before others are shown it.
QUORUM_AGENTS = 3
# Steps of a half-life; a younger session counts as new.
_AGE_STEPS = 32
_MAX_LINES = 8
_MAX_TITLE = 160


class Candidate(JsonStruct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="candidate"):
    """One session's contribution to a memory item.

    Attributes:
        item_id: derived from the lesson, so sessions agree on it independently.
        side: successes back an item, and failures contradict a recovery. `withdrawn`: judged again, the session no
            longer teaches this.
        session, revision, came: `id` and properties of its `Trajectory`. The greatest revision of a session counts.
        goal: hash of the session's goal, its task or itself.
        is_open: the session goes on. This counts until its contribution of at least the same revision arrives.
        delayed: the session got there only after another failure or look-up.
        least_goals: different goals that must back the item before it is published.
        calls: a strategy's calls in order. Its `title` is the goal.
        title, …: as in `fleetlore.wire.lore.MemoryItem`; empty in a contradiction.
    """

    item_id: str
    tenant: str
    kind: ItemKind
    side: Side
    session: str
    agent: str
    seen: Moment
    revision: tuple[Annotated[int, Meta(ge=0, lt=2**53)], Moment]
    came: Moment = 0.0
    goal: Hash = 0
    is_open: bool = False
    delayed: bool = False
    least_goals: Count = 1
    title: str = ""
    description: str = ""
    content: str = ""
    when: str = ""
    tool: str = ""
    pattern: str | None = None
    task: str = ""
    was: tuple[str, ...] = ()
    now: tuple[str, ...] = ()
    danger: bool = False
    calls: tuple[str, ...] = ()
    version: str = ""

    @property
    def said(self) -> str:
        """Sessions that say the same back each other's words."""
        if self.calls:
            return "\n".join(self.calls)
        return "\n".join((self.title, self.description, self.content, self.when, *self.was, "", *self.now))


def origin(trajectory: Trajectory) -> dict[str, Any]:
    """Return the fields of a `Candidate` that follow from its session alone."""
    return dict(
        tenant=trajectory.tenant,
        session=trajectory.id,
        agent=principal_of(trajectory.agent),
        seen=trajectory.ended,
        came=trajectory.came,
        revision=trajectory.revision,
        goal=cached_hash(trajectory.goal or trajectory.task or trajectory.id),
        is_open=trajectory.is_open,
    )


def item_id(version: str, kind: str, *key: str) -> str:
    """Another `version` of its distiller gives other ids. All tenants share ids, so an imported item merges with the
    tenant's own."""
    return _ITEM_PREFIX + pattern_id("item", version, DEFAULT_TENANT, kind, *key)[:28]


class Contributor(NamedTuple):
    """The newest verdict on one session; the greater of two counts.

    `way`: hash of the content of its contribution. `form`: unused, keeps a field's position in stored rows. `danger`:
    whether one of its calls could do harm.
    """

    revision: tuple[Count, Moment]
    side: Side
    agent: AgentHash
    seen: Moment
    way: Hash = 0
    form: int = 0
    goal: Hash = 0
    delayed: bool = False
    danger: bool = False


def weight(seen: float, newest: float, half_life_seconds: float) -> float:
    """Weight of a session relative to the newest one, 0..1. In whole steps of age, hours do not decide."""
    steps = int((newest - seen) * _AGE_STEPS / half_life_seconds)
    return float(2.0 ** (-steps / _AGE_STEPS))


def weigh(contributors: Iterable[Contributor], half_life_seconds: float) -> dict[Side, float]:
    weights: dict[Side, list[float]] = {"success": [], "failure": []}
    for each, counts in _by_agents(contributors, half_life_seconds):
        weights[each.side].append(counts)
    # fsum: the result must not depend on the order.
    return {side: fsum(some) for side, some in weights.items()}


def _by_agents(contributors: Iterable[Contributor], half_life_seconds: float) -> list[tuple[Contributor, float]]:
    """All sessions of an agent together weigh as much as its newest one."""
    contributors = list(contributors)
    newest = max((each.seen for each in contributors), default=0.0)
    weights = [weight(each.seen, newest, half_life_seconds) for each in contributors]
    of_agent: dict[int, list[float]] = {}
    for each, counts in zip(contributors, weights, strict=True):
        of_agent.setdefault(each.agent, []).append(counts)
    share = {agent: max(some) / fsum(some) for agent, some in of_agent.items()}
    return [(each, counts * share[each.agent]) for each, counts in zip(contributors, weights, strict=True)]


def votes(contributors: Iterable[tuple[int, Contributor]], half_life_seconds: float) -> dict[int, tuple[int, float]]:
    """Return the number of agents that succeeded by each way, and its weight.

    All sessions of one way end alike in one environment. So a way weighs its successes less its failures, which
    outvotes a wrong verdict. `contributors`: each with its way.
    """
    ways, sessions = zip(*contributors, strict=True) if (contributors := list(contributors)) else ((), ())
    weights: dict[int, list[float]] = {}
    agents: dict[int, set[int]] = {}
    for way, (each, counts) in zip(ways, _by_agents(sessions, half_life_seconds), strict=True):
        weights.setdefault(way, []).append(counts if each.side == "success" else -counts)
        agents.setdefault(way, set()).update([each.agent] if each.side == "success" else [])
    return {way: (len(agents[way]), fsum(some)) for way, some in weights.items()}


def is_unconfirmed(item: MemoryItem) -> bool:
    return item.danger and item.agents < QUORUM_AGENTS


def way(example: Candidate) -> Candidate:
    runs = [(call, len(list(same))) for call, same in groupby(example.calls)]
    lines = [f"{number}. {call}{f' (×{times})' if times > 1 else ''}" for number, (call, times) in enumerate(runs, 1)]
    if len(lines) > _MAX_LINES:
        half = _MAX_LINES // 2
        lines = [*lines[:half], f"… {len(lines) - _MAX_LINES} more …", *lines[-half:]]
    return replace(
        example,
        title=f"{HOW_TO}{example.title or example.task}"[:_MAX_TITLE],
        description=f"Solved in {count(len(example.calls), 'call')}.",
        content="\n".join(["What worked:", *lines]),
    )


# The distiller writes this before a quoted error, and `is_junk` reads it again.
ERROR = "Error: "


def is_junk(item: MemoryItem) -> str | None:
    if not item.title.strip() or not item.content.strip() or (item.kind == "recovery" and not (item.was or item.now)):
        return "empty"
    if item.against > item.support:
        return "contradicted"
    errors = [line.removeprefix(ERROR) for line in item.content.splitlines() if line.startswith(ERROR)]
    if item.kind == "recovery" and any(failure_of(item.tool, "", None, error).transient for error in errors):
        return "transient"
    return None
