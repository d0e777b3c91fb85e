"""Trajectories and what corrects them: a digest always fits where it is kept, and of two reviews one counts."""

from itertools import permutations
from typing import Any

from msgspec.structs import replace

from fleetlore.wire.trajectory import (
    CUT,
    DIGEST_STEPS,
    DIGEST_TEXT,
    LEAST_STEPS,
    MAX_TEXT,
    Feedback,
    Step,
    Trajectory,
)
from tests import build as sessions
from tests.rows import for_each

MILVUS_FIELD_BYTES = 65_535


def long_session(steps: int, letter: str) -> Trajectory:
    words, name = letter * MAX_TEXT, letter * 256
    ids = {"call": "c" * 32, "family": "f" * 32, "pattern": "p" * 32, "exact": "e" * 32, "advice": ("a" * 32,)}
    step = Step(
        sequence=0, role="tool", tool=name, arguments=words, result=words, error_type="E", error_message=words, **ids
    )
    about: dict[str, Any] = {"session": name, "agent": name, "task": name, "goal": words, "ending": "failure"}
    return sessions.trajectory(*[step] * steps, tenant="t" * 63, events=steps, **about)


def test_the_digest_of_a_long_session_keeps_its_beginning_and_its_end() -> None:
    digest = long_session(500, "x").digest()
    sequences = [step.sequence for step in digest.steps]
    assert LEAST_STEPS <= len(sequences) < DIGEST_STEPS and sequences == sorted(sequences)
    assert (sequences[0], sequences[-1], digest.events) == (0, 499, 500)
    for step in digest.steps:
        assert max(len(step.arguments), len(step.result), len(step.error_message or "")) == DIGEST_TEXT
    assert digest.digest() == digest
    assert long_session(500, "x").digested() == (digest, digest.to_json())


def test_a_long_session_of_short_calls_is_kept_whole() -> None:
    trajectory = sessions.trajectory(*[sessions.call("t", '{"a":1}')] * 150)
    assert trajectory.digest().steps == trajectory.steps


def test_a_digest_keeps_the_calls_of_a_usual_session_whole_and_marks_those_it_cuts() -> None:
    whole = long_session(6, "x")
    digest = whole.digest()
    assert [step.arguments for step in digest.steps] == [step.arguments for step in whole.steps]
    assert not any(step.is_cut for step in digest.steps)
    assert all(len(step.result) == DIGEST_TEXT and step.result.endswith(CUT) for step in digest.steps)
    assert all(step.is_cut for step in long_session(100, "x").digest().steps)


@for_each("text", "x", "語", "\x01")
def test_the_digest_of_the_longest_session_fits_a_field_of_the_store(text: str) -> None:
    assert len(long_session(500, text).digest().to_json()) < MILVUS_FIELD_BYTES


@for_each("ending", "success", "continued")
@for_each("count", 5, 40, 500)
def test_a_digest_of_any_names_that_a_sender_may_choose_fits_as_well(ending: Any, count: int) -> None:
    ids = tuple("😀" * 64 for _ in range(64))
    named = [sessions.call("😀" * 250 + f"{n:06}", error="e", error_type="Ж" * 9_000) for n in range(count)]
    advised = [sessions.call("t", advice=ids, withheld=ids, adapter=ids[0], mark="|" * 30) for _ in range(count)]
    for steps in (named, advised):
        assert len(sessions.trajectory(*steps, ending=ending).digest().to_json()) < MILVUS_FIELD_BYTES


def test_a_trajectory_fits_a_batch_of_kafka_with_all_of_its_steps_and_otherwise_stays_as_it_is() -> None:
    # Characters of three bytes, which do not compress where they are drawn at random.
    long = long_session(512, "馬")
    encoded = long.to_bounded_json(900_000)
    assert len(long.to_json()) > 900_000 >= len(encoded)
    assert [step.sequence for step in Trajectory.from_json(encoded).steps] == [step.sequence for step in long.steps]
    short = long_session(5, "x")
    assert short.to_bounded_json(900_000) == short.to_json()


GIVEN = Feedback(session="s", label="success", time=2.0, by="reviewer")


@for_each(
    "changes, why",
    ({"time": 1.0}, "the newer one counts"),
    ({"time": 9.0, "claimed": True}, "who may write events alone outranks no reviewer, however late"),
    ({"by": "a reviewer"}, "of two at one time it is the same one in any order"),
)
def test_one_of_two_counts_in_any_order(changes: dict[str, Any], why: str) -> None:
    for one, other in permutations([GIVEN, replace(GIVEN, **changes)]):
        assert one.newest(other) == GIVEN, why


def test_of_two_that_one_person_gave_at_one_time_the_failure_counts() -> None:
    failed = replace(GIVEN, label="failure")
    assert GIVEN.newest(failed) == failed.newest(GIVEN) == failed
