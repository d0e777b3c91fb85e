"""The TypeScript client's own tests, and its example on the official SDK, against a real relay."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from fleetlore import Fleet
from fleetlore.clock import SystemClock
from fleetlore.relay.app import relay_app
from fleetlore.wire import events as names
from tests.doubles.recorder import Recorder
from tests.fleetlore.join.model_doors import relaying
from tests.fleetlore.join.world import RIGHT, WRONG, Scripted, World
from tests.fleetlore.relay.conftest import serving
from tests.fleetlore.relay.provider import Provider
from tests.fleetlore.relay.test_api import know

CLIENT = Path(__file__).parents[3] / "clients/typescript"
MAX_LINES = 300
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.skipif(not (CLIENT / "node_modules").exists(), reason="run `npm ci` in clients/typescript"),
]


async def run(*command: str, **environ: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=CLIENT,
        env={**os.environ, **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


@pytest.fixture(scope="module", autouse=True)
def build() -> None:
    asyncio.run(run("npm", "run", "--silent", "build"))


async def test_the_client_s_own_tests_pass(fleet: Fleet, recorder: Recorder) -> None:
    fleet.clock = SystemClock()  # the client's is the real one, and an event of the far future is refused
    know(fleet)
    async with serving(relay_app({"default": fleet})) as address:
        await run("npm", "test", "--silent", FLEETLORE_RELAY=address)
    sent = [each for each in recorder.events if each.session == "ts-recorded"]
    assert [each.kind for each in sent] == ["session.started", "message", "outcome", "outcome", "session.ended"]
    assert [each.sequence for each in sent] == [0, 1, 2, 3, 4] and {each.agent for each in sent} == {"recorder"}
    failed, worked = (each.data for each in sent if each.kind == "outcome")
    assert recorder.error(failed) == ("TypeError", "index products does not exist")
    assert worked[names.RESULT] == "three chairs" and worked[names.DURATION] > 0.0
    assert sent[0].data == {names.GOAL: "find a chair", names.TASK: "shop", names.PLACE: "eu"}
    made = [each for each in recorder.events if each.kind == "outcome" and each.agent == "told"]
    assert len(made) == 1, "what was held was not made"


async def test_the_example_s_second_agent_does_not_repeat_the_failure(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def example(model: Scripted) -> list[str]:
        fleet = world.fleet()
        async with relaying(fleet, Provider(model.choose)) as address:
            keys = {"OPENAI_API_KEY": "sk-1", "AGENT": fleet.agent}
            output = await run("node", "dist/examples/openai.js", FLEETLORE_RELAY=address, **keys)
        await world.learn()
        return [line.split()[0] for line in output.splitlines()]

    assert await example(Scripted(WRONG)) == [WRONG, RIGHT]
    assert await example(Scripted()) == [RIGHT]


def test_it_stays_small() -> None:
    assert len((CLIENT / "src/index.ts").read_text().splitlines()) <= MAX_LINES
