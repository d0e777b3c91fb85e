from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.calls.programs import MAX_FORM, ending_of, forms, missing_program


@pytest.mark.parametrize(
    ("command", "own", "beside"),
    [
        ("pip install torch==2.1", ["pip install", "pip"], []),
        ("cd /a && sudo pip install --no-deps x", ["pip install --no-deps", "pip install", "pip"], ["sudo"]),
        ("nohup python3 train.py > log 2>&1 &", ["nohup python3 &", "python3"], []),
        ("A=1 timeout 60 /usr/bin/find . -name '*.py' | xxd", ["timeout find -name", "find"], ["xxd"]),
        ("export A=1; echo 'a && b' && git commit --message=x", ["git commit --message", "git commit", "git"], []),
        ("cat notes.txt", ["cat"], []),
        ("grep 4711 /etc/hosts", ["grep"], []),
    ],
)
def test_a_form_is_the_program_with_its_subcommand_and_options(command: str, own: list[str], beside: list[str]) -> None:
    assert forms("bash", command) == (own, beside)


def test_of_a_call_that_is_no_free_text_it_is_the_tool() -> None:
    assert forms("get_order", '{"order_id": "#W1234567"}') == (["get_order"], [])


@pytest.mark.parametrize(
    ("error", "ending", "missing"),
    [
        ("Command timed out", "timed out", ""),
        ("/bin/bash: line 1: xxd: command not found", "not found", "xxd"),
        ("sh: 1: sudo: not found", "not found", "sudo"),
        ("zsh: command not found: vim", "not found", "vim"),
        ("mkdir: cannot create directory: Permission denied", "refused", ""),
        ("Error: user not found", None, ""),
        ("grep: a.txt: No such file or directory", None, ""),
    ],
)
def test_an_ending_depends_on_the_program(error: str, ending: str | None, missing: str) -> None:
    assert (ending_of(error), missing_program(error)) == (ending, missing)


@given(st.text(alphabet="ab -&|;>'\"=/\n\\", max_size=200))
def test_any_command_can_be_read(command: str) -> None:
    assert all(0 < len(form) <= MAX_FORM for form in forms("bash", command).own)
