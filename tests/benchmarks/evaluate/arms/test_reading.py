"""What an agent gets out of a text: calls that worked or failed, in order, and how often such calls fail."""

from __future__ import annotations

import pytest

from benchmarks.demo.world import Call
from benchmarks.evaluate.arms.reading import Told, advised, failure_rate, stories

PUSH = [Call("push", {"branch": "fix-1", "force": value}) for value in (True, False)]
PULL = Call("git.pull", {"rebase": True})
STASH = Call("stash", {})
CANDIDATES = [*PUSH, PULL, STASH]

RECOVERY = """<fleet-memory>
What other sessions of this fleet ran into.
- recovery (3 sessions): push: rejected — first git.pull({"rebase":true})
  Failed: push({"branch":"fix-9","force":false})
  Error: rejected
  Then: git.pull({"rebase":true})
  Got past it: the same call again
- [#1a2b3c4d] push will likely fail (25%): rejected (12 of 48 sessions with it)
</fleet-memory>"""


def said(text: str, made: tuple[str, ...] = ()) -> list[float]:
    return advised(stories(text), [], CANDIDATES, made)


def test_a_recovery_is_read_as_a_story_of_three_calls() -> None:
    push = Told("push", {"branch": "fix-9", "force": False}, False)
    assert stories(RECOVERY) == ((push, Told("git.pull", {"rebase": True}, True), push._replace(worked=True)),)


def test_what_was_done_between_a_failure_and_its_end_comes_first() -> None:
    assert said(RECOVERY) == [-1.0, -1.0, 1.0, 0.0]
    assert said(RECOVERY, (PULL.key,)) == [-0.5, 0.5, 0.0, 0.0]


def test_of_other_arguments_that_worked_after_a_preparation_nothing_says_which_of_the_two_it_was() -> None:
    text = 'Failed: push({"branch":"b","force":true})\nThen: stash({})\nWorked: push({"branch":"b","force":false})'
    assert said(text) == [-1.0, 0.5, 0.0, 0.0]


def test_in_the_log_of_the_session_itself_nothing_is_missing_that_it_did_until_the_tool_fails_again() -> None:
    log = stories(RECOVERY)
    assert advised([], [], CANDIDATES, (), log) == [-0.5, 0.5, 0.0, 0.0]
    assert advised([], [], CANDIDATES, (), log, {"git.pull"}) == [-0.5, 0.5, 0.0, 0.0]
    assert advised([], [], CANDIDATES, (), log, {"push"}) == said(RECOVERY) == [-1.0, -1.0, 1.0, 0.0]


def test_other_arguments_that_worked_are_preferred_to_those_that_failed() -> None:
    text = 'Failed: push({"branch":"b","force":true})\nWorked: push({"branch":"b","force":false})\nChange: force'
    assert said(text) == [-1.0, 0.5, 0.0, 0.0]


def test_raw_steps_are_read_by_how_they_ended() -> None:
    raw = (
        'push({"branch":"b","force":true}) -> error 1: rejected\n'
        'stash({}) -> ok\npush({"branch":"b","force":false}) -> ok'
    )
    assert said(raw) == [-1.0, 0.5, 0.0, 0.0]


@pytest.mark.parametrize("told", ["Past a failure like this (6 agents): ", "[#1a2b3c4d] ", ""])
def test_a_title_is_read_as_what_got_past_the_failure_of_a_tool(told: str) -> None:
    assert said(f'- {told}push: 1: rejected — git.pull({{"rebase":true}}) (6 agents)') == [-0.5, -0.5, 1.0, 0.0]
    assert said(f"- {told}push: 1: rejected — `force=true` → `force=false`") == [-1.0, 0.5, 0.0, 0.0]
    vain = 'git.pull({"rebase":true})'
    lines = f'\n  Failed: push({{"branch":"b","force":true}})\n  Tried in vain: {vain}'
    assert said(f"- {told}push: 1: rejected — not {vain} (6 agents){lines}") == [0.0, 0.0, -1.0, 0.0]


def test_lists_are_read_by_their_heading() -> None:
    text = 'What worked:\n1. stash({})\nOnly in a session that failed:\n  - git.pull({"rebase": true})'
    assert said(text) == [0.0, 0.0, -1.0, 0.0]
    assert stories("A session that failed did not do:\n  - stash({})") == ((Told("stash", {}, True),),)


def test_a_call_that_fits_several_candidates_says_half_of_each() -> None:
    assert said('Failed: push({"branch":"b","force":"with-lease"})') == [-0.5, -0.5, 0.0, 0.0]


def test_that_a_tool_worked_elsewhere_is_no_reason_to_use_it_but_how_it_worked_says_which_way() -> None:
    assert said("Worked: stash()") == [0.0] * 4
    assert said('Worked: push({"branch":"b","force":false})') == [-0.5, 0.5, 0.0, 0.0]


def test_what_quotes_no_readable_call_says_nothing() -> None:
    for text in (
        "",
        "the push failed",
        'Worked: push({"branch":"cut…',
        "Failed: the call (see above)",
        "Then: it worked ()",
    ):
        assert stories(text) == ()
    assert said("nothing") == [0.0] * 4


def test_a_rate_speaks_of_the_call_it_was_given_for() -> None:
    assert failure_rate(RECOVERY) == 0.25
    assert failure_rate("no rate") is None
    assert advised([], [(0, 0.25), (1, None)], CANDIDATES, ()) == [-0.25, 0.0, 0.0, 0.0]
    assert advised(stories(RECOVERY), [(1, 0.5)], CANDIDATES, ()) == [-1.0, -0.75, 1.0, 0.0]
