from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from models.data.dataset import Example
from models.data.replay_buffer import ReplayBuffer


def example(number: int, tool: str = "t", failed: bool = False, agent: str = "a") -> Example:
    return Example(
        key=f"{number:032x}",
        agent=agent,
        vectors=np.zeros((3, 256), dtype=np.float16),
        failed=np.array([int(failed)], dtype=np.int8),
        contrast=("c",),
        tools=(tool,),
        session_failed=failed,
    )


EXAMPLES = [example(n, f"tool-{n % 3}", n % 4 == 0) for n in range(60)]


@given(st.integers(1, 59), st.integers(0, 5))
def test_content_and_draws_do_not_depend_on_repeats_or_batches(cut: int, repeats: int) -> None:
    expected = ReplayBuffer(24)
    expected.add(EXAMPLES)
    buffer = ReplayBuffer(24)
    buffer.add(EXAMPLES[:cut])
    buffer.add(buffer.all()[:repeats])
    buffer.add(EXAMPLES[cut:])
    assert [e.key for e in buffer.all()] == [e.key for e in expected.all()]
    assert [e.key for e in buffer.draw(10, 3)] == [e.key for e in expected.draw(10, 3)]


def test_newer_episodes_are_likelier_and_older_ones_not_gone_at_once() -> None:
    buffer = ReplayBuffer(50)
    buffer.add(example(n) for n in range(1000))
    ages = sorted(999 - int(e.key, 16) for e in buffer.all())
    assert ages[len(ages) // 2] < 100
    assert ages[-1] > 75


def test_a_tool_that_is_no_longer_used_is_still_rehearsed() -> None:
    buffer = ReplayBuffer(40)
    buffer.add(example(n, "old") for n in range(100))
    kept = {e.key for e in buffer.all()}
    buffer.add(example(1000 + n, "new") for n in range(1000))
    left = {e.key for e in buffer.all() if e.tools == ("old",)}
    assert len(left) == 20 and left < kept


def test_it_never_grows_past_its_capacity() -> None:
    buffer = ReplayBuffer(50)
    buffer.add(example(n) for n in range(1000))
    assert len(buffer) == 50


def test_a_rare_failure_is_drawn_as_often_as_a_common_success() -> None:
    buffer = ReplayBuffer(100)
    buffer.add(example(n) for n in range(500))
    buffer.add(example(1000 + n, failed=True) for n in range(5))
    assert sum(e.session_failed for e in buffer.draw(10, 0)) == 5


def test_a_flood_of_one_tool_does_not_wash_out_another() -> None:
    buffer = ReplayBuffer(20)
    buffer.add(example(n, "rare") for n in range(8))
    for start in range(0, 2000, 100):
        buffer.add(example(100 + start + n, "common") for n in range(100))
    assert sum(e.tools == ("rare",) for e in buffer.all()) == 8


def test_what_small_strata_leave_free_serves_the_others() -> None:
    buffer = ReplayBuffer(100)
    buffer.add(example(n, f"rare-{n}") for n in range(10))
    buffer.add(example(100 + n, "common") for n in range(500))
    assert len(buffer) == 100


def test_who_sends_five_times_as_much_is_kept_no_more_often() -> None:
    buffer, crowd = ReplayBuffer(40), [*"abcd", *["liar"] * 16]
    buffer.add(example(n, agent=crowd[n % len(crowd)]) for n in range(2000))
    assert sum(e.agent == "liar" for e in buffer.all()) == 8


def test_draws_hold_no_episode_twice_and_differ_by_seed() -> None:
    buffer = ReplayBuffer(60)
    buffer.add(EXAMPLES)
    drawn = [[e.key for e in buffer.draw(20, seed)] for seed in range(5)]
    assert all(len(set(keys)) == 20 for keys in drawn)
    assert len({tuple(keys) for keys in drawn}) == 5


def test_an_empty_buffer_gives_nothing() -> None:
    assert ReplayBuffer(10).draw(5, 0) == []
