from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.foresight.failure_recall import EXAMPLES, FailureRecall, MetFailure, failures_of
from fleetlore.wire.trajectory import Step
from tests.build import call, trajectory


class WordVectors:
    """Texts are alike as far as they share words."""

    dimensions = 64

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in enumerate(texts):
            for word in text.split():
                rows[row, crc32(word.encode()) % self.dimensions] += 1
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def met(session: str = "s", agent: str = "ann", task: str = "cook", pattern: str = "p", **fields: Any) -> MetFailure:
    known = {
        "tool": "sql",
        "family": f"family of {pattern}",
        "call": f"call {task}",
        "context": (),
        "goal": f"do {task}",
    }
    return MetFailure(session=session, agent=agent, task=task, pattern=pattern, **{**known, **fields})


def recall_of(*failures: MetFailure) -> FailureRecall:
    recall = FailureRecall(WordVectors())
    for failure in failures:
        recall.add(failure)
    return recall


def found(recall: FailureRecall, query: MetFailure, most: int = 5) -> list[tuple[str, str]]:
    return [(each.task, each.pattern) for each in recall.similar(query, most)]


def test_the_same_pattern_comes_before_whatever_is_alike_in_words() -> None:
    recall = recall_of(
        met("1", task="bake"),
        met("2", task="cook", pattern="q", family="f"),
        met("3", task="cook", pattern="r", family="f"),
        met("4", task="cook", pattern="z", tool="bash"),
    )
    query = met("9", agent="ben", family="f")
    assert found(recall, query) == [("bake", "p"), ("cook", "q"), ("cook", "r")]
    assert found(recall, query, most=1) == [("bake", "p")]


def test_among_equals_the_goal_decides_and_without_it_the_call_and_what_led_to_it() -> None:
    recall = recall_of(
        met("1", task="cook", call="a b", context=("c d",), goal="boil the eggs"),
        met("2", task="bake", call="x y", context=("c d",), goal="a cake"),
        met("3", task="fry", call="a b", context=("z",), goal="some fish"),
    )
    assert found(recall, met("9", agent="ben", call="q", goal="a cake"))[0] == ("bake", "p")
    assert found(recall, met("9", agent="ben", call="x y", context=("c d",), goal=""))[0] == ("bake", "p")
    assert found(recall, met("9", agent="ben", call="q", context=("z",), goal=""))[0] == ("fry", "p")


class Blind(WordVectors):
    """Nothing is like anything."""

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.zeros((len(texts), self.dimensions), np.float32)


def test_a_rare_word_says_more_than_many_common_ones() -> None:
    recall = FailureRecall(Blind())
    for number in range(20):
        recall.add(met(str(number), agent=f"a{number}", task=f"task-{number}", call="please find the name of a band"))
    recall.add(met("rare", agent="eve", task="rare", call="who sang in Maroon"))
    assert found(recall, met("9", agent="ben", call="please find the name of Maroon", goal=""))[0] == ("rare", "p")


def test_an_agent_is_not_told_what_it_met_itself() -> None:
    recall = recall_of(met("1", agent="ann"))
    assert found(recall, met("2", agent="ann")) == []
    assert not recall.met_by_others(met("2", agent="ann"))
    assert found(recall, met("2", agent="ben")) == [("cook", "p")]
    assert recall.met_by_others(met("2", agent="ben"))
    assert not recall.met_by_others(met("2", agent="ben", task="bake"))


FAILURES = st.lists(
    st.builds(
        met,
        session=st.sampled_from([f"s{n}" for n in range(6)]),
        agent=st.sampled_from([f"a{n}" for n in range(EXAMPLES + 3)]),
        task=st.sampled_from(["cook", "bake"]),
        pattern=st.sampled_from(["p", "q"]),
    ),
    max_size=40,
)


@given(FAILURES, st.randoms(use_true_random=False))
def test_what_is_known_depends_on_the_set_alone(failures: list[MetFailure], chance: object) -> None:
    # A session's first failure of a class is one: the same (session, agent, task, pattern) has one wording.
    worded = [replace(each, call=f"{each.session} {each.agent} {each.task}") for each in failures]
    again = [*worded, *worded[:5]]
    chance.shuffle(again)  # type: ignore[attr-defined]
    first, second = recall_of(*worded), recall_of(*again)
    for query in (met("9", agent="new"), met("9", agent="a1", task="bake", call="s1 a2 bake", pattern="q")):
        assert [(r.task, r.pattern) for r in first.similar(query, 5)] == [
            (r.task, r.pattern) for r in second.similar(query, 5)
        ]
        assert np.allclose(
            [r.score for r in first.similar(query, 5)], [r.score for r in second.similar(query, 5)], atol=1e-5
        )


def test_a_session_asks_once_for_each_failure_and_never_for_one_that_passes() -> None:
    def failed(error: str) -> Step:
        return call("sql", "SELECT 1", error=error)

    session = trajectory(
        Step(sequence=0, role="user", result="my goal is secret"),
        Step(sequence=1, role="assistant", result="thinking aloud"),
        failed("no such table: 'x'"),
        failed("no such table: 'x'"),
        failed("HTTP 503 Service Unavailable"),
        failed("no such column: 'y'"),
        agent="ann",
        task="cook",
    )
    first, second = failures_of(session)
    assert first.context == ("thinking aloud",)
    assert "no such table" in first.call and "no such column" in second.call
    assert second.context == ("thinking aloud", "SELECT 1", "SELECT 1", "SELECT 1")
