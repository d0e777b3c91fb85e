from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.risk.session_texts import action_text, outcome_text, session_texts
from fleetlore.wire.trajectory import Step

STEPS = [
    Step(sequence=1, role="tool", tool="shell", arguments='{"cmd": "ls"}'),
    Step(
        sequence=2, role="tool", tool="shell", arguments='{"cmd": "rm"}', error_type="1", error_message="denied\nmore"
    ),
]


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none())))
def test_arguments_read_alike_as_object_and_as_json(arguments: dict[str, Any]) -> None:
    assert action_text("t", arguments) == action_text("t", json.dumps(arguments))


@pytest.mark.parametrize(
    "arguments", [None, 2**90, {1: 2, "a": 3}, object(), [float("nan")], "{broken", "[" * 100_000, b"x"]
)
def test_any_arguments_have_a_text(arguments: Any) -> None:
    assert action_text("tool", arguments).startswith("tool")


def test_texts_of_a_session() -> None:
    assert session_texts("goal", STEPS) == ["goal", "shell cmd ls", "ok", "shell cmd rm", "error 1 denied"]


@pytest.mark.parametrize(
    ("kind", "message", "text"),
    [(None, None, "ok"), ("E", None, "error E"), (None, "  \n", "error"), ("", "a\nb", "error a")],
)
def test_texts_of_outcomes(kind: str | None, message: str | None, text: str) -> None:
    assert outcome_text(kind, message) == text
