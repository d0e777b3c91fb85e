"""How soon a failure that the gateway sees is told elsewhere, on a stack with Apache Kafka."""

import asyncio
import time
from pathlib import Path

import httpx2
import pytest

import fleetlore
from streams.embedded.broker import KafkaMissing, free_port, java_command
from streams.embedded.stack import Stack
from tests.fleetlore.relay.provider import Provider
from tests.fleetlore.relay.test_command import running
from tests.served import serving

ARGUMENTS, ERROR = '{"index": "products"}', "LookupError: index products does not exist"


@pytest.mark.slow
async def test_a_failure_is_told_within_a_second_while_its_session_is_open(tmp_path: Path) -> None:
    try:
        java_command()
    except KafkaMissing as missing:
        pytest.skip(str(missing))
    http, provider = f"127.0.0.1:{free_port()}", Provider(lambda *messages: None)
    options = ("--data", str(tmp_path), "--http", http, "--openai")
    async with (
        Stack(tmp_path, trainer=False, keep_log=True),
        serving(provider.app) as upstream,
        running(*options, f"{upstream}/v1"),
        httpx2.AsyncClient(base_url=f"http://{http}", timeout=120) as client,
        fleetlore.Fleet("second", data=tmp_path, holdout_share=0.0) as fleet,
    ):
        times = [await _seconds_until_told(client, fleet, f"search_{letter * 4}") for letter in "abcdefgh"]
    assert max(times[1:]) < 1.0, times


async def _seconds_until_told(client: httpx2.AsyncClient, fleet: fleetlore.Fleet, tool: str) -> float:
    """Fail a call, as the client of a model shows it in its next request."""
    goal = {"role": "user", "content": f"find a chair by {tool}"}
    call = {"id": "c1", "type": "function", "function": {"name": tool, "arguments": ARGUMENTS}}
    failed = {"role": "assistant", "content": None, "tool_calls": [call]}
    said = {"role": "tool", "tool_call_id": "c1", "content": ERROR}
    async with fleet.session(goal=f"another goal, {tool}") as session:
        for messages in ([goal], [goal, failed, said]):
            body = {"model": "m", "messages": messages, "tools": [{"type": "function", "function": {"name": tool}}]}
            start = time.monotonic()
            answer = await client.post("/openai/v1/chat/completions", json=body, headers={"fleetlore-agent": "first"})
            assert answer.status_code == 200, answer.text
        while not session.advise(tool, {"index": "products"}).text:
            await asyncio.sleep(0.01)
        session.succeed()
    return time.monotonic() - start
