"""What the hooks of coding agents record and answer: of Claude Code as it sent them, of others as documented.

Claude Code itself stands in `tests/fleetlore/join/test_every_door.py`.
"""

import gc
import weakref
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from fleetlore import Fleet
from fleetlore.advice.decide import Draft, write
from fleetlore.join.hooks import CODING_AGENTS
from fleetlore.relay.app import Hooks, relay_app
from fleetlore.relay.callers import Caller
from fleetlore.wire import events
from tests.doubles.recorder import Recorder
from tests.fleetlore.join.conftest import know_better

RECORDED = Path(__file__).with_name("recorded") / "claude-code-2.1.332.jsonl"
DENIED = "cat: /etc/shadow: Permission denied"

Send = Callable[..., dict[str, Any]]


@pytest.fixture
def send(fleet: Fleet) -> Send:
    client = TestClient(relay_app({"default": fleet}), base_url="http://127.0.0.1")

    def sent(agent: str, **given: Any) -> dict[str, Any]:
        answer = client.post(f"/v1/hooks/{agent}", content=orjson.dumps(given), headers={"Fleetlore-Agent": "dev"})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    return sent


def test_a_session_of_claude_code_is_recorded(send: Send, recorder: Recorder) -> None:
    for line in RECORDED.read_bytes().splitlines():
        send("claude-code", **orjson.loads(line))
    kinds = ["session.started", "message", "outcome", "outcome", "message", "session.ended"]
    assert recorder.kinds == kinds and {each.agent for each in recorder.events} == {"dev"}
    assert recorder.events[0].data[events.GOAL] == "find a chair"
    failed, worked = recorder.outcomes
    assert recorder.error(failed) == ("_OTHER", "Exit code 1\ncat: /nowhere/products: No such file or directory")
    assert failed[events.DURATION] == 0.258 and worked[events.RESULT]["stdout"] == "three chairs"


def test_claude_code_is_told_at_its_prompt_and_once_its_context_was_made_shorter(send: Send) -> None:
    session = {"session_id": "c1"}
    assert send("claude-code", **session, hook_event_name="SessionStart", source="startup") == {}
    [prompt] = send("claude-code", **session, hook_event_name="UserPromptSubmit", prompt="read it").values()
    assert prompt["hookEventName"] == "UserPromptSubmit" and "fleet-memory" in prompt["additionalContext"]
    assert send("claude-code", **session, hook_event_name="UserPromptSubmit", prompt="and that") == {}
    [again] = send("claude-code", **session, hook_event_name="SessionStart", source="compact").values()
    assert again == {**prompt, "hookEventName": "SessionStart"}


def test_an_agent_that_another_starts_reads_in_its_own_context_what_that_one_read(send: Send) -> None:
    session = {"session_id": "c1"}
    [parent] = send("claude-code", **session, hook_event_name="UserPromptSubmit", prompt="read it").values()
    about = {"agent_id": "a1", "agent_type": "Explore"}
    for _ in "12":
        [told] = send("claude-code", **session, **about, hook_event_name="SubagentStart").values()
        assert told == {**parent, "hookEventName": "SubagentStart"}
    assert send("claude-code", **session, hook_event_name="UserPromptSubmit", prompt="and that") == {}


def test_a_call_that_is_sure_to_fail_is_denied_once(send: Send, fleet: Fleet, recorder: Recorder) -> None:
    know_better(fleet, "Bash", "command")
    call = {"session_id": "c1", "tool_name": "Bash", "tool_input": {"command": "/etc/shadow"}}
    for agent in ("claude-code", "codex"):
        [said] = send(agent, **call, tool_use_id="1", hook_event_name="PreToolUse").values()
        assert said.pop("permissionDecision") == "deny" and "Use `command=/srv/a`" in said.pop(
            "permissionDecisionReason"
        )
        assert said == {"hookEventName": "PreToolUse"}
        assert send(agent, **call, tool_use_id="2", hook_event_name="PreToolUse") == {}
    send("claude-code", **call, tool_use_id="1", hook_event_name="PostToolUseFailure", error="denied")
    assert not recorder.outcomes, "a call that was not made says nothing of its tool"
    call |= {"conversation_id": "c2", "tool_name": "Bash"}
    said = send("cursor", **call, tool_use_id="1", hook_event_name="preToolUse")
    assert said.pop("permission") == "deny" and "Use `command=/srv/a`" in said.pop("agent_message") and not said
    assert not recorder.outcomes


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ({"duration_ms": "12"}, "boom"), ({"duration_ms": 1e300}, "boom"), ({"duration_ms": -5}, "boom"),
        ({"error": {"message": "x"}}, '{"message":"x"}'), ({"error": [{"type": "text", "text": "x"}]}, "x"),
        ({"error": None}, ""), ({"is_interrupt": "no", "error": 5}, None),
    ],
)  # fmt: skip
def test_an_odd_detail_costs_no_call(send: Send, recorder: Recorder, odd: dict[str, Any], message: str | None) -> None:
    call = {"session_id": "s", "tool_name": "Bash", "tool_use_id": "t1"}
    send("claude-code", **call, hook_event_name="PreToolUse")
    send("claude-code", **call, hook_event_name="PostToolUseFailure", **{"error": "boom", **odd})
    send("claude-code", session_id="s", hook_event_name="Stop", last_assistant_message=[{"text": "done"}, 5])
    assert [recorder.error(each)[1] for each in recorder.outcomes] == ([] if message is None else [message])
    assert recorder.kinds[-1] == "message"


def test_cursor_is_told_where_it_listens(send: Send, recorder: Recorder) -> None:
    """Of its hooks two take a text for the model; what is to be said at another waits for one of them."""

    def sent(event: str, **given: Any) -> dict[str, Any]:
        return send("cursor", conversation_id="c1", generation_id="g", hook_event_name=event, **given)

    call = {"tool_name": "Shell", "tool_input": {"command": "cat /etc/shadow"}, "cwd": "/"}
    began = send("cursor", session_id="c1", hook_event_name="sessionStart", is_background_agent=False)
    assert list(began) == ["additional_context"] and "fleet-memory" in began["additional_context"]
    assert sent("beforeSubmitPrompt", prompt="read it", attachments=[]) == {"continue": True}
    assert sent("preToolUse", **call, tool_use_id="1") == {"permission": "allow"}
    failed = {"error_message": DENIED, "failure_type": "error", "duration": 250, "is_interrupt": False}
    assert sent("postToolUseFailure", **call, **failed, tool_use_id="1") == {}
    refused = {"error_message": "no", "failure_type": "permission_denied", "duration": 1}
    assert sent("postToolUseFailure", **call, **refused, tool_use_id="2") == {}
    for number in range(2):  # three times the same: a loop
        assert sent("postToolUseFailure", **call, **failed, tool_use_id=f"again {number}") == {}
    call["tool_input"] = {"command": "ls"}
    [told] = sent(
        "postToolUse", **call, tool_output='{"exitCode":0,"stdout":"a"}', duration=5, tool_use_id="3"
    ).values()
    assert "goes in circles" in told
    sent("postToolUse", **call, tool_output='{"exitCode":2,"stdout":"","stderr":"no a"}', duration=5, tool_use_id="4")
    sent("afterAgentResponse", text="done")
    assert sent("sessionEnd", reason="completed") == {}
    errors = [recorder.error(each) for each in recorder.outcomes]
    assert errors == [*[("_OTHER", DENIED)] * 3, None, ("_OTHER", "no a")]
    assert recorder.kinds[0] == "session.started" and recorder.kinds[-1] == "session.ended"
    assert [each.data[events.ROLE] for each in recorder.events if each.kind == "message"] == ["user", "assistant"]


@pytest.mark.parametrize("id", [{}, {"tool_use_id": None}, {"tool_use_id": ""}])
def test_calls_of_cursor_without_an_id_are_told_apart(send: Send, recorder: Recorder, id: dict[str, Any]) -> None:
    """Two calls side by side, of which the second ends first; and the first of them once more."""

    def sent(event: str, command: str, **given: Any) -> dict[str, Any]:
        about = {"conversation_id": "c1", "tool_name": "Shell", "tool_input": {"command": command}, **id}
        return send("cursor", **about, hook_event_name=event, **given)

    for command in ("ls", "make", "ls"):
        sent("preToolUse", command)
    sent("postToolUseFailure", "make", error_message="no rule", failure_type="error")
    sent("postToolUse", "ls", tool_output="a")
    sent("postToolUse", "ls", tool_output="b")
    found = [(each[events.ARGUMENTS]["command"], each.get(events.RESULT)) for each in recorder.outcomes]
    assert found == [("make", None), ("ls", "a"), ("ls", "b")]


FRAME = "Chunk ID: 3f9c21\nWall time: 0.05 seconds\nProcess exited with code {}\nOriginal token count: 9\nOutput:\n{}"


def test_the_frame_of_codex_decides_and_a_call_that_a_person_refused_is_none(send: Send, recorder: Recorder) -> None:
    """Which texts say what is in `tests/fleetlore/transcripts/test_calls.py`."""
    quoting = FRAME.format(0, "ci.log: Process exited with code 1")
    for response in (FRAME.format(2, "ls: x"), quoting, "exec command rejected by user"):
        about = {"session_id": "c1", "tool_name": "Bash", "tool_use_id": "1", "tool_input": {"command": "x"}}
        send("codex", **about, hook_event_name="PreToolUse")
        send("codex", **about, hook_event_name="PostToolUse", tool_response=response)
    assert [recorder.error(each) is not None for each in recorder.outcomes] == [True, False]


def test_a_call_that_another_hook_changed_is_recorded_as_it_ran(send: Send, fleet: Fleet, recorder: Recorder) -> None:
    draft = Draft(text="Look into /srv first.", why="w", start=True)
    fleet.replica.index.put_hint(hint := write(fleet.replica.index, draft, by="ann", now=fleet.clock.now()))
    call = {"session_id": "c1", "tool_name": "Bash", "tool_use_id": "1", "tool_response": {"stdout": "x"}}
    send("claude-code", session_id="c1", hook_event_name="UserPromptSubmit", prompt="look around")
    for given in ({"tool_input": {"command": "ls -A"}}, {}):
        send("claude-code", **call, hook_event_name="PreToolUse", tool_input={"command": "ls"})
        fleet.clock.advance(2.0)
        send("claude-code", **call, hook_event_name="PostToolUse", **given)
    found = [(each[events.ARGUMENTS]["command"], each[events.DURATION]) for each in recorder.outcomes]
    assert found == [("ls -A", 2.0), ("ls", 2.0)]
    assert [each.get(events.ADVICE) for each in recorder.outcomes] == [[hint.id], None], "the first followed advice"


def test_a_long_error_shortens_no_arguments(send: Send, recorder: Recorder) -> None:
    given = {"session_id": "c1", "tool_name": "Bash", "tool_use_id": "1", "tool_input": {"command": "ls " * 1_700}}
    send("claude-code", **given, hook_event_name="PreToolUse")
    send("claude-code", **given, hook_event_name="PostToolUseFailure", error="no such file. " * 650)
    assert [each[events.ARGUMENTS] for each in recorder.outcomes] == [given["tool_input"]]


def test_codex_is_told_of_a_loop(send: Send) -> None:
    call = {"session_id": "c1", "tool_name": "Bash", "tool_input": {"command": "cat /etc/shadow"}}
    for id in ("1", "2", "3"):
        assert send("codex", **call, tool_use_id=id, hook_event_name="PreToolUse") == {}
        given = {"tool_use_id": id, "hook_event_name": "PostToolUse", "tool_response": FRAME.format(1, DENIED)}
        told = send("codex", **call, **given)
    # Codex takes an answer with a field that it does not know for none.
    [output] = told.values()
    assert set(output) == {"hookEventName", "additionalContext"} and "goes in circles" in output["additionalContext"]


def test_a_silent_session_is_left_and_its_next_call_begins_a_part(send: Send, fleet: Fleet, recorder: Recorder) -> None:
    call = {"session_id": "c1", "tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "1"}
    send("claude-code", **call, hook_event_name="PreToolUse")
    fleet.clock.advance(700.0)
    send("claude-code", **{**call, "session_id": "c2"}, hook_event_name="PreToolUse")
    assert recorder.kinds.count("session.ended") == 1
    send("claude-code", **call, hook_event_name="PostToolUse", tool_response={"stdout": "ok"})
    [outcome] = [each for each in recorder.events if each.kind == "outcome"]
    assert outcome.session.startswith("c1.") and outcome.session != recorder.events[0].session
    assert outcome.data[events.RESULT] == {"stdout": "ok"}


def test_of_a_session_that_ended_nothing_is_kept_and_of_tools_a_bounded_number(fleet: Fleet) -> None:
    hooks = Hooks()

    def send(agent: str, event: str, tool: str = "Bash") -> None:
        call = {"session_id": "c1", "tool_name": tool, "tool_input": {}, "tool_use_id": tool, "hook_event_name": event}
        # As in a request of its own, where it is the current session.
        copy_context().run(hooks.answer, fleet, Caller("default", agent), "claude-code", orjson.dumps(call))

    for number in range(300):
        send("a", "PreToolUse", f"mcp__a__{number}")
    send("b", "PreToolUse", "b" * 1000)
    send("b", "PreToolUse", "mcp__b__1")
    a, b = (hooks._tools.get(("default", agent, "claude-code")) for agent in ("a", "b"))
    assert a is not None and b is not None
    assert len(a) == 256 and set(b) == {*CODING_AGENTS["claude-code"], "mcp__b__1"}
    sessions = [weakref.ref(each) for each in hooks.sessions.values()]
    for agent in ("a", "b"):
        send(agent, "SessionEnd")
    gc.collect()
    assert [each() for each in sessions] == [None, None]


@pytest.mark.parametrize(
    ("agent", "body", "status"),
    [
        ("vim", b"{}", 404),
        ("claude-code", b"", 400),
        ("claude-code", b"[1]", 400),
        ("claude-code", b"{}", 400),
        ("claude-code", b'{"hook_event_name":"PreToolUse","session_id":"s"}', 400),
        ("claude-code", b'{"hook_event_name":"PreToolUse","session_id":7,"tool_name":"x"}', 400),
        ("codex", b'{"hook_event_name":"Stop","session_id":"s","tool_use_id":[{}]}', 400),
        ("cursor", b'{"hook_event_name":"preToolUse"}', 400),
        ("cursor", b'{"hook_event_name":"preToolUse","session_id":"s","prompt":[{}]}', 400),
        ("claude-code", b'{"hook_event_name":"SomethingNew","session_id":"s"}', 200),
    ],
)
def test_what_is_no_hook_is_told(fleet: Fleet, agent: str, body: bytes, status: int) -> None:
    client = TestClient(relay_app({"default": fleet}), base_url="http://127.0.0.1")
    answer = client.post(f"/v1/hooks/{agent}", content=body)
    assert answer.status_code == status, answer.text
    assert status == 200 or answer.json()["detail"]
