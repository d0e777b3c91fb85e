"""Define observations: what one session has seen of one tool, kind of call or failure pattern.

The counts are cumulative: merged by maximum, they stay right however often a record is processed.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
import orjson

from fleetlore.fingerprint.fingerprint import Failure, tool_id
from fleetlore.fingerprint.loops import LoopPattern
from fleetlore.stats.bottom_k import BADLY, WELL
from fleetlore.watch.safety import PREFIX, dangers, rule_id
from fleetlore.wire.lore import LOOP
from models.memory.pattern_state import Subject


class Observation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A subject and what one session has seen of it.

    Attributes:
        session, agent: hashes (`fleetlore.stats.bottom_k.stable_hash`).
        first, last: event times in seconds since the Unix epoch.
        ended: how the session ended, as in `fleetlore.stats.bottom_k.SessionCounts`.
        agent_name: the agent's name, where the subject is a tool: its health says which agents fail.
    """

    subject: Subject
    session: int
    agent: int
    calls: int
    failures: int
    first: float
    last: float
    ended: int = 0
    agent_name: str = ""


def how_it_ended(ending: str | None, reward: float | None) -> int:
    """Return `Observation.ended` of a session, by its ending or else its reward; 0 where the two contradict.

    Corrections are left out: one may arrive before its session, and the same events must always give the same state.
    """
    rewarded = None if reward is None or 0 < reward < 1 else "success" if reward >= 1 else "failure"
    ended = ending if ending in ("success", "failure") else None
    if ended is not None and rewarded is not None and ended != rewarded:
        return 0
    return {"success": WELL, "failure": BADLY}.get(ended or rewarded or "", 0)


def subjects_of_call(tool: str, call: str, shape: str) -> tuple[Subject, ...]:
    """Return the subjects of every call: the health of its tool and of its kind."""
    return (
        Subject(tool_id(tool), "tool", tool),
        Subject(call, "call", tool, shape=shape, parent=tool_id(tool)),
    )


def subjects_of_failure(failure: Failure, call: str) -> tuple[Subject, ...]:
    """Return the further subjects of a failed call: its pattern at three levels."""
    tool, error_class, transient = failure.tool, failure.error_class, failure.transient
    return (
        Subject(failure.family, "family", tool, error_class, transient=transient),
        Subject(failure.class_, "class", tool, error_class, failure.template, "", failure.family, None, transient),
        Subject(
            failure.exact, "exact", tool, error_class, failure.template, failure.shape, failure.class_, call, transient
        ),
    )


def subjects_of_warnings(tool: str, arguments: str, advice: tuple[str, ...]) -> list[Subject]:
    """Return the safety rules that the agent was shown before a call and that the call breaks all the same."""
    shown = [id.removeprefix(PREFIX) for id in advice if id.startswith(PREFIX)]
    if not shown:
        return []
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        value = arguments
    broken = dangers(tool, value)
    return [Subject(rule_id(name), "safety", "", template=name) for name in broken if name in shown]


@lru_cache(maxsize=4096)
def subjects_of_loop(loop: LoopPattern) -> tuple[Subject, ...]:
    """Return the subjects of a call in a loop, at the same three levels as a failure."""
    tool, template = loop.tool, loop.template
    return (
        Subject(loop.family, "family", tool, LOOP),
        Subject(loop.class_, "class", tool, LOOP, template, "", loop.family),
        Subject(loop.exact, "exact", tool, LOOP, template, "", loop.class_, loop.call),
    )
