from __future__ import annotations

import numpy as np
import pytest

from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.risk.network import MAX_STEPS
from fleetlore.testing import sessions
from fleetlore.testing.sessions import call
from fleetlore.wire.trajectory import Judgment, Step
from models.data.dataset import UNLABELLED, collate, examples_of
from models.data.ineffective import ineffective_labels


def judgment(steps: int, session: str = "s", failed: tuple[int, ...] = (), transient: tuple[int, ...] = ()) -> Judgment:
    calls = [
        call(
            f"tool-{n % 2}",
            f'{{"n": {n}}}',
            error_type="E" if n in failed else None,
            family="fam" if n in failed else None,
            pattern="cls" if n in failed else None,
            transient=n in transient,
        )
        for n in range(steps)
    ]
    message = Step(sequence=0, role="user", result="hello")
    return sessions.judgment(message, *calls, label="failure", session=session, ending="failure")


def test_a_session_becomes_goal_actions_and_outcomes() -> None:
    (example,) = examples_of(judgment(3, failed=(1,)), shared_encoder())
    assert example.vectors.shape == (7, 256)
    assert example.failed.tolist() == [0, 1, 0]
    assert example.contrast == ("ok tool-0", "fam", "ok tool-0")
    assert example.session_failed
    assert example.stratum == ("tool-1", True)


def test_a_transient_fault_is_no_label() -> None:
    (example,) = examples_of(judgment(3, failed=(1,), transient=(1,)), shared_encoder())
    assert example.failed.tolist() == [0, UNLABELLED, 0]
    assert example.stratum == ("tool-0", False)


def test_whether_a_step_was_in_vain_is_a_label_in_one_window() -> None:
    made = judgment(20, failed=(3, 9))
    windows = examples_of(made, shared_encoder())
    labels = np.concatenate([window.ineffective[window.failed != UNLABELLED] for window in windows])
    assert labels.tolist() == ineffective_labels(made.trajectory.calls)
    assert collate(windows).ineffective.shape == collate(windows).failed.shape


def test_a_session_without_a_call_teaches_nothing() -> None:
    assert examples_of(judgment(0), shared_encoder()) == []


@pytest.mark.parametrize("steps", [1, 15, 16, 17, 24, 25, 40, 100])
def test_every_step_of_a_long_session_is_a_label_exactly_once(steps: int) -> None:
    examples = examples_of(judgment(steps, failed=tuple(range(0, steps, 3))), shared_encoder())
    labelled = np.concatenate([example.failed[example.failed != UNLABELLED] for example in examples])
    assert labelled.tolist() == [int(n % 3 == 0) for n in range(steps)]
    assert all(len(example.failed) <= MAX_STEPS for example in examples)
    assert len({example.held_out for example in examples}) == 1
    assert len({example.key for example in examples}) == len(examples)


def test_about_one_session_in_five_is_held_out_whatever_the_order() -> None:
    held = [examples_of(judgment(1, session=f"s{n}"), shared_encoder())[0].held_out for n in range(500)]
    assert 70 <= sum(held) <= 130


def test_padding_is_no_label() -> None:
    encoder = shared_encoder()
    batch = collate([*examples_of(judgment(2), encoder), *examples_of(judgment(5, failed=(4,)), encoder)])
    assert batch.vectors.shape == (2, 11, 256)
    assert batch.failed.tolist() == [[0, 0, -1, -1, -1], [0, 0, 0, 0, 1]]
    assert (batch.contrast == UNLABELLED).tolist() == (batch.failed == UNLABELLED).tolist()
    assert batch.length.tolist() == [2, 5]
