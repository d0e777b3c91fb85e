"""Have agents lie to a fleet about what helps, and count how often another agent is then told otherwise, through
`Session.advise`.

Ten honest agents meet each failure and get past it by the same call, once each. Liars say that another call helped;
some also that the honest one failed. The first-ranked advice for the failure is compared, with liars and without. The
rival is the item that the most sessions say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetlore.agent.session import Session
from fleetlore.wire.events import Event
from fleetlore.wire.lore import MemoryItem
from streams.offline.memory_pipeline import MemoryPipeline

HONEST = [f"honest-{number}" for number in range(10)]
LIARS = [f"liar-{number}" for number in range(6)]
VOLUME = 5
# A command, the word that it does not know, and the one that is right.
MISTAKES = (
    ("git", "comit", "commit"), ("npm", "instal", "install"), ("cargo", "biuld", "build"),
    ("docker", "imgaes", "images"),
    ("kubectl", "aply", "apply"), ("pip", "unistall", "uninstall"), ("helm", "upgrde", "upgrade"),
    ("terraform", "inti", "init"), ("poetry", "lokc", "lock"), ("conda", "creat", "create"),
    ("brew", "updat", "update"),
    ("apt-get", "purgr", "purge"), ("systemctl", "statsu", "status"), ("yarn", "pubish", "publish"),
    ("gradle", "asemble", "assemble"), ("mvn", "pakage", "package"), ("dotnet", "restroe", "restore"),
    ("flutter", "analize", "analyze"), ("composer", "reqire", "require"), ("gem", "vendro", "vendor"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Poisoned:
    """The fate of first-ranked advice that honest agents back.

    Attributes:
        told: failures after which it is given where nobody lies.
        lied: those of them after which another is given now.
        silenced: those of them after which none is given now.
        by_sessions: those of them after which another would be given if sessions were counted.
    """

    told: int
    lied: int
    silenced: int
    by_sessions: int


async def poisoned(liars: Sequence[str], volume: int, *, denies: bool) -> Poisoned:
    """Lie, and compare the advice.

    Args:
        volume: sessions of a liar about a failure; an honest agent has one.
        denies: they say that the honest call failed, too.
    """
    before, _ = await _told((), 0, denies=denies)
    now, most_sessions = await _told(liars, volume, denies=denies)
    told = [number for number, said in enumerate(before) if said == _right(number)]
    return Poisoned(
        len(told),
        sum(now[number] not in ("", _right(number)) for number in told),
        sum(not now[number] for number in told),
        sum(most_sessions[number] != _right(number) for number in told),
    )


async def _told(liars: Sequence[str], volume: int, *, denies: bool) -> tuple[list[str], list[str]]:
    """The call that is advised first after each failure, and the one that the most sessions say."""
    pipeline = MemoryPipeline()
    for number, (_, word, _) in enumerate(MISTAKES):
        lies = [(agent, True) for agent in liars for _ in range(volume)]
        truths = [(agent, False) for agent in HONEST]
        events: list[Event] = []
        for place, (agent, lies_now) in enumerate(lies + truths if number % 2 else truths + lies):
            with pipeline.session(agent, f"mend {word}", "", f"s-{number}-{place}", events) as session:
                _meet(session, number)
                if lies_now and denies:
                    session.record("bash", {"command": _right(number)}, error_text=_error(number))
                command = _wrong(number) if lies_now else _right(number)
                session.record("bash", {"command": command}, result="done")
                session.succeed()
        await pipeline.take(events)
    said: list[str] = []
    for number, (_, word, _) in enumerate(MISTAKES):
        with pipeline.session("newcomer", f"mend {word}", "", f"asks-{number}", []) as session:
            _meet(session, number)
            advice = session.advise()
            # Advice that is withheld at random is not silenced.
            held_back = [item for id in advice.withheld if (item := pipeline.index.items.get(id)) is not None]
            said.append(_command([*advice.items, *held_back][0], number) if advice.items or held_back else "")
    recoveries = [item for item in pipeline.index.items.values() if item.kind == "recovery"]
    return said, [_most_sessions(recoveries, number) for number in range(len(MISTAKES))]


def _most_sessions(items: Sequence[MemoryItem], number: int) -> str:
    met = [item for item in items if f" {MISTAKES[number][0]} command" in item.title]
    rivals = [item for item in met if _command(item, number) in (_right(number), _wrong(number))]
    return _command(max(rivals, key=lambda item: item.support), number) if rivals else ""


def _meet(session: Session, number: int) -> None:
    command, word, _ = MISTAKES[number]
    session.record("bash", {"command": f"{command} {word}"}, error_text=_error(number))


def _error(number: int) -> str:
    command, word, _ = MISTAKES[number]
    return f"{command}: '{word}' is not a {command} command"


def _right(number: int) -> str:
    return f"{MISTAKES[number][0]} {MISTAKES[number][2]}"


def _wrong(number: int) -> str:
    return f"{MISTAKES[number][0]} reset"


def _command(item: MemoryItem, number: int) -> str:
    """The call that fails, with the change that the item says."""
    return " ".join((MISTAKES[number][0], *item.now))
