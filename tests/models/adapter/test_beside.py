from __future__ import annotations

import math
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.testing.sessions import call, judgment
from fleetlore.wire.adapter_manifest import Blend, State
from models.adapter.beside import MOST_EVIDENCE, MOST_WAITING, Beside, Line, line_of
from models.calls.thresholds import Foreseen
from models.calls.training import CallTraining
from models.data.dataset import Example, examples_of
from models.promotion.metrics import Predictions

NEEDED = -math.log(0.05)
STATES: tuple[State, ...] = ("after_failure", "after_success")


def session(number: int, ends: list[bool], tool: str = "sql") -> Example:
    return Example(
        key=f"{number:032x}0000",
        agent=f"a{number % 9}",
        vectors=np.zeros((1 + 2 * len(ends), 4), np.float16),
        failed=np.array(ends, np.int8),
        contrast=("c",) * len(ends),
        tools=(tool,) * len(ends),
        session_failed=False,
    )


def said(chances: list[float]) -> Predictions:
    """What a network says of the calls; nothing else of it is read."""
    empty = np.array([""] * len(chances))
    return Predictions(np.array(chances), np.zeros(len(chances), bool), empty, np.zeros(len(chances), int), empty)


def line(example: Example, chances: list[float], state: State = "after_failure") -> Line:
    ends = example.failed.tolist()
    return {
        (example.session, place): Foreseen(place, "", place, example.tools[place], state, chance, bool(ends[place]))
        for place, chance in enumerate(chances)
    }


def go_through(
    beside: Beside, sessions: int, right: float | None, state: State = "after_failure", first: int = 0
) -> Beside:
    """Sessions of two calls of which the call model knows nothing, and the network so much; None: it makes it up."""
    chance = Random(first)
    for number in range(first, first + sessions):
        ends = [chance.random() < 0.5 for _ in range(2)]
        told = [right if failed else 1 - right for failed in ends] if right else [chance.choice((0.1, 0.9))] * 2
        example = session(number, ends)
        beside.foresee([example], said(told))
        beside.learn(line(example, [0.5, 0.5], state))
    return beside


def speaks(beside: Beside) -> list[tuple[str, State]]:
    return [each.where for each in beside.blends()]


def test_a_network_that_knows_more_speaks_once_that_is_shown_and_only_there() -> None:
    beside = Beside(0.05, NEEDED)
    assert speaks(go_through(beside, 2, right=0.9)) == []
    assert speaks(go_through(beside, 60, right=0.9)) == [("sql", "after_failure")]
    assert speaks(go_through(beside, 60, right=0.5, state="first")) == [("sql", "after_failure")]
    (blend,) = beside.blends()
    assert blend.network > 0 and blend.log_evidence >= NEEDED


def test_a_network_that_makes_it_up_from_now_on_falls_silent_however_long_it_was_right() -> None:
    beside = go_through(Beside(0.05, NEEDED), 2_000, right=0.9)
    assert beside.blends()[0].log_evidence <= MOST_EVIDENCE
    assert speaks(go_through(beside, 250, right=None, first=9_000)) == []


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.sampled_from(STATES)), min_size=1, max_size=40),
)
def test_a_network_that_says_nothing_is_never_heard(calls: list[tuple[float, bool, State]]) -> None:
    beside = Beside(0.05, 1e-9)
    for number, (chance, failed, state) in enumerate(calls):
        example = session(number, [failed])
        beside.foresee([example], said([0.5]))
        beside.learn(line(example, [chance], state))
    assert beside.blends() == ()


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_when_the_call_models_word_comes_does_not_matter(seed: int) -> None:
    chance = Random(seed)
    sessions = [session(number, [chance.random() < 0.5 for _ in range(3)]) for number in range(6)]
    network = [said([0.9 if failed else 0.1 for failed in each.failed.tolist()]) for each in sessions]
    word: dict[tuple[str, int], Foreseen] = {}
    for example in sessions:
        word |= line(example, [chance.uniform(0.4, 0.6) for _ in range(3)])
    late, split = Beside(0.05, -99.0), Beside(0.05, -99.0)
    for example, told in zip(sessions, network, strict=True):
        late.foresee([example], told)
        split.foresee([example], told)
    late.learn(word)
    late.learn(word)  # each session counts once
    split.learn({key: each for key, each in word.items() if key[0] in {e.session for e in sessions[:3]}})
    split.learn(word)
    (one,), (other,) = late.blends(), split.blends()
    assert (one.line, one.network, one.bias) == (other.line, other.network, other.bias)


def test_a_trainer_that_starts_again_goes_on_from_the_published_version() -> None:
    published = go_through(Beside(0.05, NEEDED), 60, right=0.9).blends()
    again = Beside(0.05, NEEDED)
    again.go_on(published)
    assert again.blends() == published
    again.forget(["sql"])
    assert again.blends() == ()


def test_what_the_running_learner_knows_itself_is_newer_than_what_was_published() -> None:
    beside = go_through(Beside(0.05, NEEDED), 60, right=0.9)
    known = beside.blends()
    beside.go_on([Blend("sql", "after_failure", 9.0, 9.0, 9.0, 9.0)])
    assert beside.blends() == known


def test_sessions_of_which_the_call_model_never_says_anything_do_not_pile_up() -> None:
    beside = Beside(0.05, NEEDED)
    for number in range(MOST_WAITING + 5):
        beside.foresee([session(number, [True])], said([0.5]))
    assert len(beside._waiting) == MOST_WAITING


def test_a_call_is_found_again_in_what_the_call_model_foresaw() -> None:
    steps = [call("sql", f"SELECT {n}", "1 row", None if n % 3 else "no such column: x") for n in range(40)]
    judged = judgment(*steps, session="s", agent="a")
    training = CallTraining()
    training.learn(judged.trajectory)
    word = line_of(judged.trajectory.tenant, training.version().foreseen)
    found = 0
    for example in examples_of(judged, shared_encoder()):
        for place, label in enumerate(example.failed.tolist()):
            if label >= 0:
                assert word[example.session, example.start + place].failed == bool(label)
                found += 1
    assert found == len(word) == 40
