"""Coding agents by the real protocol of their hooks: four fail alike, and the fifth is warned before its call."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from fleetlore import Fleet
from fleetlore.relay.app import relay_app
from fleetlore.wire.lore import MemoryItem, Pattern
from fleetlore.wire.topics import topic
from tests.doubles.recorder import Recorder
from tests.streams.log_pipeline import LogPipeline

JQ = "/bin/bash: line 1: jq: command not found"
GREP = "grep: Unmatched [, [^, [:, [., or [="
FRAME = "Chunk ID: {}\nWall time: 0.0{} seconds\nProcess exited with code {}\nOriginal token count: 14\nOutput:\n{}"


class Coder:
    """One agent's hooks. Each call has an id of its own, and Codex frames each output anew."""

    def __init__(self, client: str, agent: str, http: TestClient) -> None:
        self.client, self.agent, self.http, self.calls = client, agent, http, 0

    def send(self, event: str, **given: Any) -> dict[str, Any]:
        about = {"session_id": f"s-{self.agent}", "hook_event_name": event, **given}
        body, headers = orjson.dumps(about), {"Fleetlore-Agent": self.agent}
        answer = self.http.post(f"/v1/hooks/{self.client}", content=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def begins(self, command: str) -> dict[str, Any]:
        self.calls += 1
        self.call = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": f"toolu_{self.calls}"}
        return self.send("PreToolUse", **self.call)

    def fails(self, command: str, error: str, code: int) -> None:
        assert self.begins(command) == {}
        if self.client == "claude-code":
            self.send("PostToolUseFailure", **self.call, error=f"Exit code {code}\n{error}", is_interrupt=False)
        else:
            said = FRAME.format(f"{self.agent}{self.calls}", self.calls, code, error)
            self.send("PostToolUse", **self.call, tool_response=said)


@pytest.fixture
def http(fleet: Fleet) -> Iterator[TestClient]:
    yield TestClient(relay_app({"default": fleet}), base_url="http://127.0.0.1")


async def learned(recorder: Recorder, fleet: Fleet) -> list[Pattern]:
    """Let the pipeline learn from what the hooks recorded, and the fleet follow it; its patterns of calls."""
    pipeline = LogPipeline("default")
    await pipeline.send(recorder.events)
    await pipeline.drain()
    index = fleet.replica.index
    for record in pipeline.log.read_all(topic("default", "patterns")):
        index.put_pattern(Pattern.from_json(record.value or b""))
    for record in pipeline.log.read_all(topic("default", "items")):
        index.put_item(MemoryItem.from_json(record.value or b""))
    return [each for each in index.patterns.values() if each.level == "class"]


def meet(http: TestClient, client: str, agent: str, error: str, code: int) -> None:
    coder = Coder(client, agent, http)
    coder.send("UserPromptSubmit", prompt="read the settings")
    coder.fails("jq .name settings.json", error, code)
    coder.send("Stop", last_assistant_message="it cannot be read")


CLIENTS = pytest.mark.parametrize("client", ["claude-code", "codex"])


@CLIENTS
async def test_the_fifth_agent_is_warned_before_the_call_at_which_four_failed(
    fleet: Fleet, recorder: Recorder, http: TestClient, client: str
) -> None:
    for number in range(4):
        meet(http, client, f"dev{number}", JQ, 127)
    [pattern] = await learned(recorder, fleet)
    assert (pattern.agents, pattern.failures) == (4, 4)
    fifth = Coder(client, "dev5", http)
    fifth.send("UserPromptSubmit", prompt="read the settings")
    told = fifth.begins("jq .name settings.json")["hookSpecificOutput"]
    assert told["permissionDecision"] == "deny" and "jq" in told["permissionDecisionReason"]
    assert fifth.begins("ls settings.json") == {}, "another call is made"
    assert fifth.begins("jq .name settings.json") == {}, "the model that insists is obeyed"


@CLIENTS
async def test_two_unlike_failures_are_two_patterns(
    fleet: Fleet, recorder: Recorder, http: TestClient, client: str
) -> None:
    """The frames around them are alike, and differ for failures that are the same."""
    for number in range(4):
        meet(http, client, f"dev{number}", (JQ, GREP)[number % 2], 1)
    found = await learned(recorder, fleet)
    assert sorted(each.agents for each in found) == [2, 2] and len({each.template for each in found}) == 2
