"""Sessions of a fleet whose agents write a wrong name first: at each task one agent in three gets past it."""

from fleetlore.wire.trajectory import Judgment
from tests.build import call, judgment

ERROR = "no such table: {}s"
NAMES = ("heron", "plover", "avocet", "dunlin", "curlew", "godwit")


def select(name: str) -> str:
    return f'{{"query": "SELECT label FROM {name}"}}'


def session(number: int, *, past: bool, name: str | None = None, agent: str = "", goal: str = "") -> Judgment:
    """A session whose first call fails. It then makes the call that works, or the same call again."""
    name = name or NAMES[number % len(NAMES)]
    wrong = call("sql", select(f"{name}s"), error=ERROR.format(name), error_type="OperationalError")
    right = call("sql", select(name), result="[('x',)]")
    return judgment(
        wrong,
        right if past else wrong,
        label="success" if past else "failure",
        session=f"s{number}",
        agent=agent or f"p{number % 7}:1",
        task=f"{name}/{number % 4}",
        goal=goal or f"List the labels of every {name}",
        ended=1_000.0 + number,
    )


def fleet(count: int) -> list[Judgment]:
    return [session(number, past=number % 3 != 1) for number in range(count)]
