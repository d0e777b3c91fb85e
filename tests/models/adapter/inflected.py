"""Sessions whose errors share their stems and not their words: words alone rank their ways out badly."""

from random import Random

from fleetlore.wire.trajectory import Trajectory
from tests.build import call, trajectory

STEMS = (
    ("river", "stone", "cloud"),
    ("mirror", "pencil", "rocket"),
    ("copper", "desert", "eagle"),
    ("silver", "temple", "umbrella"),
    ("bridge", "castle", "dragon"),
    ("candle", "forest", "engine"),
)
ENDINGS = ("", "s", "ed", "ing", "like", "ish", "ward", "less", "ful", "er", "y", "house", "line", "way", "man", "land")
NOISE = tuple(a + b + c for a in "bdgkmt" for b in "aiou" for c in ("nd", "rk", "zz", "lp"))


def session(number: int) -> Trajectory:
    """A call is refused for three things of one kind, and works once it has what that kind needs."""
    random = Random(number)
    kind = random.randrange(len(STEMS))
    things = [stem + random.choice(ENDINGS) for stem in STEMS[kind]]
    job = " ".join(random.sample(NOISE, 3))
    error = f"refused: {' '.join(things)} {' '.join(random.sample(NOISE, 3))}"
    return trajectory(
        call("run", f'{{"job": "{job}"}}', "", error),
        call("run", f'{{"job": "{job} with_{"abcdef"[kind]}"}}', "done"),
        goal=" ".join(random.sample(NOISE, 3)),
        task=f"t{number}",
        session=f"s{number}",
        agent=f"a{number % 7}",
        ended=float(number),
    )


def sessions(first: int, count: int) -> list[Trajectory]:
    return [session(number) for number in range(first, first + count)]
