"""The TypeScript client's own tests against a real relay; its examples are doors of `test_every_door.py`."""

import re
from pathlib import Path

from fleetlore import Fleet
from fleetlore.clock import SystemClock
from fleetlore.relay.app import relay_app
from fleetlore.wire import events as names
from tests.doubles.recorder import Recorder
from tests.fleetlore.join.typescript_doors import CLIENT, MARKS, node
from tests.fleetlore.relay.test_api import ERROR, know
from tests.served import serving

MAX_LINES, MAX_AGENT_LINES = 300, 12
pytestmark = MARKS


async def test_the_client_s_own_tests_pass(fleet: Fleet, recorder: Recorder) -> None:
    fleet.clock = SystemClock()  # the client's is the real one, and an event of the far future is refused
    know(fleet)
    async with serving(relay_app({"default": fleet})) as address:
        await node("npm", "test", "--silent", FLEETLORE_RELAY=address, FLEETLORE_KNOWN_TOOL="search")
    sent = [each for each in recorder.events if each.session == "ts-recorded"]
    assert [each.kind for each in sent] == ["session.started", "message", "outcome", "outcome", "session.ended"]
    assert [each.sequence for each in sent] == [0, 1, 2, 3, 4] and {each.agent for each in sent} == {"recorder"}
    failed, worked = (each.data for each in sent if each.kind == "outcome")
    assert recorder.error(failed) == ("TypeError", ERROR)
    assert worked[names.RESULT] == "three chairs" and worked[names.DURATION] > 0.0
    assert sent[0].data == {names.GOAL: "find a chair", names.TASK: "shop", names.PLACE: "eu"}
    made = [each for each in recorder.events if each.kind == "outcome" and each.agent == "told"]
    assert len(made) == 1, "what was held was not made"


def test_it_stays_small() -> None:
    assert len((CLIENT / "src/index.ts").read_text().splitlines()) <= MAX_LINES


async def test_an_agent_of_the_readme_is_told(fleet: Fleet, tmp_path: Path) -> None:
    """From the packed client to the first advice, in the words of its README, in a folder of its own."""
    fleet.clock = SystemClock()
    know(fleet)
    [agent] = re.findall(r"```ts\n(.*?)```", (CLIENT / "README.md").read_text(), re.DOTALL)
    assert len(agent.splitlines()) <= MAX_AGENT_LINES
    await node("npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(tmp_path))
    shown = "const search = () => '3 hits';\nprocess.on('uncaughtException', (error) => console.log(error.message));\n"
    here = agent.replace('"shop-7"', '"shop-7", url: process.env.FLEETLORE_RELAY')
    (tmp_path / "agent.mjs").write_text(shown + here.replace("const hits =", "console.log(system);\nconst hits ="))
    async with serving(relay_app({"default": fleet})) as address:
        [package] = tmp_path.glob("*.tgz")
        await node("npm", "install", "--silent", "--no-audit", "--prefix", str(tmp_path), str(package))
        told = await node("node", str(tmp_path / "agent.mjs"), FLEETLORE_RELAY=address)
    assert told.index("Use `index=products-eu`") < told.index("not made")
