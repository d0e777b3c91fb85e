"""The guide's page on any language: what it shows for each of them is run against a real relay."""

import asyncio
import os
import re
import shutil
from pathlib import Path

import pytest

from fleetlore import Fleet
from fleetlore.relay.app import relay_app
from tests.doubles.recorder import Recorder
from tests.fleetlore.relay.test_api import know
from tests.served import serving

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/guide/join/any-language.md").read_text()
ADDRESS = "http://127.0.0.1:7411"
MOST_LINES = 5
KINDS = ["session.started", "outcome", "session.ended"]


def block(language: str, word: str) -> str:
    [found] = [
        each for each in re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) if word in each
    ]
    assert len(found.splitlines()) <= MOST_LINES
    return str(found)


async def run(*command: str, **environ: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **environ}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_curl(fleet: Fleet, recorder: Recorder) -> None:
    know(fleet)
    async with serving(relay_app({"default": fleet})) as address:
        output = await run("sh", "-ec", block("sh", "curl").replace(ADDRESS, address))
    assert recorder.kinds == KINDS and recorder.error(recorder.outcomes[0]) == ("_OTHER", "no index products")
    assert "Use `index=products-eu`" in output and {each.agent for each in recorder.events} == {"shop-7"}


@pytest.mark.long
@pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed")
async def test_go(fleet: Fleet, recorder: Recorder, tmp_path: Path) -> None:
    know(fleet)
    show = "body, _ := io.ReadAll(told.Body); fmt.Println(string(body), err)"
    imports = 'import ("fmt"; "io"; "net/http"; "strings")'
    program = tmp_path / "main.go"
    async with serving(relay_app({"default": fleet})) as address:
        made = block("go", "http.Post").replace(ADDRESS, address)
        program.write_text(f"package main\n{imports}\nfunc main() {{\n{made}\n{show}\n}}\n")
        output = await run("go", "run", str(program))
    assert recorder.kinds == KINDS and "Use `index=products-eu`" in output


@pytest.mark.long
@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
async def test_typescript(fleet: Fleet, recorder: Recorder, tmp_path: Path) -> None:
    client = ROOT / "clients/typescript/dist/src/index.js"
    if not client.exists():
        pytest.skip("run `npm ci && npm run build` in clients/typescript")
    from fleetlore.clock import SystemClock

    fleet.clock = SystemClock()
    know(fleet)
    script = tmp_path / "agent.mjs"
    async with serving(relay_app({"default": fleet})) as address:
        made = block("ts", "new Relay").replace('agent: "shop-7"', f'agent: "shop-7", url: "{address}"')
        script.write_text(
            f'import {{ Relay }} from "{client}";\nconst search = () => "3 hits";\n{made}console.log(system, hits);\n'
        )
        output = await run("node", str(script))
    assert recorder.kinds == KINDS and "Use `index=products-eu`" in output and "3 hits" in output
