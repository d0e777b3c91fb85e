"""The hook of STATE-Bench: what the fleet knows of the agent's tools comes as the list of texts that it asks for."""

import json
import sys
import types
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.transcripts.read import read_sessions
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev
from fleetlore.wire.topics import topic
from streams.offline.memory_pipeline import run_logs

EXAMPLE = Path(__file__).parents[2] / "examples" / "state_bench"
TOOLS = [{"type": "function", "name": name} for name in ("update_booking", "get_booking")]


@pytest.fixture(autouse=True)
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Its modules can be imported, and are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    for name in ("fleetlore_agent", "trajectories"):
        sys.modules.pop(name, None)


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one class of the benchmark that the example needs, as far as it needs it."""

    class StateBenchAgent:
        def __init__(self, tools: list[dict[str, Any]]) -> None:
            self.tools = [*tools, {"type": "function", "name": "retrieve_learnings"}]

    module: Any = types.ModuleType("state_bench.agents.state_bench")
    module.StateBenchAgent, module.RETRIEVE_LEARNINGS_TOOL_NAME = StateBenchAgent, "retrieve_learnings"
    for name in ("state_bench", "state_bench.agents"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "state_bench.agents.state_bench", module)


@pytest.fixture
async def fleet_address(own_broker: EmbeddedBroker, make_topics: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fleet in which agents got past one failure of `update_booking`; `FLEETLORE_BROKER` says where."""
    own_broker.start()
    await make_topics(own_broker.address, "default", "events", "patterns", "items", partitions=1)
    run = await run_logs([booked(number) for number in range(6)], seed=0, learn=True)
    async with AIOKafkaProducer(bootstrap_servers=own_broker.address) as producer:
        for name, found in (("patterns", run.patterns), ("items", run.items)):
            for each in found:
                await producer.send_and_wait(topic("default", name), each.to_json(), key=each.id.encode())
    monkeypatch.setenv("FLEETLORE_BROKER", own_broker.address)
    monkeypatch.setenv("FLEETLORE_HOLDOUT_SHARE", "0")
    return own_broker.address


def booked(number: int) -> LoggedSession:
    """A session whose call failed for one argument and worked with another."""
    session = LoggedSession(
        f"s{number}", f"agent-{number % 3}", f"trip {number}", f"Move trip {number}.", "success", 1.0
    )
    wrong = {"booking_id": f"BK-{number}", "cabin": "eco"}
    failed = {ev.TOOL: "update_booking", ev.ARGUMENTS: wrong, ev.ERROR_TYPE: "ValueError"}
    right = {ev.TOOL: "update_booking", ev.ARGUMENTS: wrong | {"cabin": "economy"}, ev.RESULT: "done"}
    session.events = [("outcome", failed | {ev.ERROR_MESSAGE: "unknown cabin 'eco'"}), ("outcome", right)]
    return session


def test_the_hook_returns_what_the_fleet_tells_of_the_agents_tools(benchmark: None, fleet_address: str) -> None:
    module = import_module("fleetlore_agent")
    module.FleetloreAgent.searches = False
    try:
        said = module.FleetloreAgent(TOOLS).retrieve_learnings("The customer wants another cabin.", top_k=3)
        assert said == ["Use `cabin=economy` instead of `cabin=eco` in update_booking."]
        assert module.FleetloreAgent(TOOLS[1:]).retrieve_learnings("The customer wants another cabin.") == []
    finally:
        module.ending.close()


def test_training_trajectories_are_written_as_chat_messages(tmp_path: Path) -> None:
    call = {"name": "get_booking", "arguments": {"booking_id": "BK-1"}, "result": {"status": "confirmed"}}
    said = [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": "Cancel BK-1."},
        {"role": "assistant", "content": "It is confirmed.", "tool_calls": [call]},
        {"role": "assistant", "content": "Done.", "tool_calls": None},
    ]
    (tmp_path / "travel").mkdir()
    (tmp_path / "travel" / "1-cancel.json").write_text(json.dumps({"conversation": said}))
    lines = [json.dumps(each) for each in import_module("trajectories").sessions(tmp_path, rewards=False)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    [session] = read_sessions(tmp_path / "train.jsonl")
    assert (session.task, session.goal, session.outcome) == ("travel/1-cancel", "Cancel BK-1.", "unknown")
    assert [kind for kind, _ in session.events] == ["message", "outcome", "message", "message"]
    assert session.events[1][1][ev.ARGUMENTS] == {"booking_id": "BK-1"}
