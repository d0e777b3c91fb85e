from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetlore.wire.trajectory import Step
from models.data.ineffective import HELPED, INEFFECTIVE, REACH, UNKNOWN, ineffective_labels


def session(text: str) -> list[Step]:
    """`deploy!locked` fails with that error, `deploy~` by a passing fault, `login` works; `login:2` with other
    arguments.
    """
    return [step(number, word) for number, word in enumerate(text.split())]


def step(number: int, word: str) -> Step:
    call, _, error = word.partition("!")
    failed, passing = bool(error), call.endswith("~")
    tool = call.rstrip("~").partition(":")[0]
    return Step(
        sequence=number,
        role="tool",
        tool=tool,
        call=call,
        error_type="E" if failed or passing else None,
        pattern=f"{tool} {error}" if failed or passing else None,
        transient=passing,
    )


def test_what_stood_between_an_error_and_getting_past_it_helped() -> None:
    assert ineffective_labels(session("deploy!locked login deploy")) == [INEFFECTIVE, HELPED, HELPED]
    assert ineffective_labels(session("deploy!locked login deploy!refused")) == [INEFFECTIVE, HELPED, INEFFECTIVE]


def test_what_did_not_keep_the_error_from_coming_again_was_in_vain() -> None:
    found = ineffective_labels(session("deploy!locked wait deploy!locked login deploy"))
    assert found == [INEFFECTIVE, INEFFECTIVE, INEFFECTIVE, HELPED, HELPED]


def test_of_several_calls_the_helpful_one_is_unknown_and_of_one_made_twice_it_is_the_first() -> None:
    assert ineffective_labels(session("deploy!locked wait login deploy"))[1:3] == [UNKNOWN, UNKNOWN]
    assert ineffective_labels(session("deploy!locked login login deploy"))[1:3] == [HELPED, INEFFECTIVE]
    assert ineffective_labels(session("deploy!locked login login:2 deploy"))[1:3] == [UNKNOWN, UNKNOWN]


def test_what_was_done_before_anything_failed_has_no_label() -> None:
    assert ineffective_labels(session("login deploy list")) == [UNKNOWN] * 3


def test_a_passing_fault_says_nothing() -> None:
    assert ineffective_labels(session("deploy~ login deploy")) == [UNKNOWN] * 3
    assert ineffective_labels(session("deploy!locked login deploy~ deploy")) == [INEFFECTIVE, HELPED, UNKNOWN, HELPED]


def test_what_was_done_long_before_the_next_call_may_have_been_about_something_else() -> None:
    between = " ".join(["list"] * (REACH + 1))
    assert set(ineffective_labels(session(f"deploy!locked {between} deploy!locked"))[1:-1]) == {UNKNOWN}


@given(st.lists(st.sampled_from(["a", "a!x", "a!y", "b", "b!x", "c", "a~"]), max_size=30))
def test_failed_calls_are_in_vain_and_no_other_call_is_without_one(words: list[str]) -> None:
    calls = session(" ".join(words))
    labels = ineffective_labels(calls)
    assert len(labels) == len(calls)
    for place, call in enumerate(calls):
        if call.failed:
            assert labels[place] == (UNKNOWN if call.transient else INEFFECTIVE)
    if not any(label == INEFFECTIVE for label in labels):
        assert set(labels) <= {UNKNOWN}
