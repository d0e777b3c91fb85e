"""This tree works with an older one: agents, pipeline, relay and folder."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streams.embedded.broker import free_port

ROOT = Path(__file__).parents[2]
OLD = "8dc829d7dc4e190e3da52c2ce6041ff37ab9e29f"  # 300 commits before the one that brought this test
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

# Three agents get past a failure, and each waits until its sessions are written.
LEARN = """
import asyncio, sys
from fleetlore import Fleet

async def main(where):
    for agent in ("first", "second", "third"):
        async with Fleet(agent, **where) as fleet, fleet.session("find a chair", task="shop") as session:
            for index, answer in (("products", None), ("products-eu", "3 chairs")):
                try:
                    async with session.action("search", {"index": index}) as action:
                        if answer is None:
                            raise LookupError("index products does not exist, it was split into products-eu")
                        action.result = answer
                except LookupError:
                    pass
            session.succeed()

asyncio.run(main({sys.argv[1]: sys.argv[2]}))
"""
# A fourth asks until it is told the name, and no hint is withheld by chance.
ASK = """
import asyncio, sys
from fleetlore import Fleet

async def main(where):
    fleet = Fleet(sys.argv[3], holdout_share=0.0, **where)
    async with fleet, fleet.session("find a chair", task="shop") as session:
        for _ in range(600):
            text = session.advise("search", {"index": "products"}).text
            if "products-eu" in text:
                return print(text)
            await asyncio.sleep(0.1)
        raise SystemExit("told nothing in a minute: " + repr(text))

asyncio.run(main({sys.argv[1]: sys.argv[2]}))
"""
# An agent ignores lore of another version of the patterns until it is upgraded.
PATTERNS = "from fleetlore.fingerprint.fingerprint import VERSION; print(VERSION)"


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folder of packages of either version."""
    folder = tmp_path_factory.mktemp("old")
    archive = subprocess.run(["git", "archive", OLD], cwd=ROOT, capture_output=True)
    if archive.returncode:
        pytest.skip(f"this clone does not hold the commit {OLD}")
    (source := folder / "source").mkdir()
    subprocess.run(["tar", "x"], cwd=source, input=archive.stdout, check=True)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder / "packages"]
    subprocess.run([*install, source, source / "deploy" / "server"], check=True)
    return {"old": folder / "packages", "new": ROOT}


def environment(tree: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLEETLORE_")}
    return {**kept, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}


@contextmanager
def up(tree: Path, data: Path) -> Iterator[int]:
    """Run `fleetlore up` of a version on a folder, and give the relay's port."""
    port = free_port()
    options = ["--data", str(data), "--http", f"127.0.0.1:{port}", "--no-console", "--no-trainer"]
    with subprocess.Popen(
        [sys.executable, "-m", "fleetlore.cli.main", "up", *options],
        cwd=data.parent,
        env=environment(tree),
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stderr is not None
            lines = []
            for line in running.stderr:
                lines.append(line)
                if "Ctrl-C stops it" in line:
                    break
            else:
                pytest.fail("".join(lines))
            yield port
        finally:
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=120)


def run(program: str, tree: Path, cwd: Path, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment(tree), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("pipeline", "agent"), [("old", "new"), ("new", "old")])
def test_agents_of_one_version_learn_from_the_pipeline_of_the_other(
    trees: dict[str, Path], tmp_path: Path, pipeline: str, agent: str
) -> None:
    data = tmp_path / "lore"
    with up(trees[pipeline], data) as port:
        run(LEARN, trees[agent], tmp_path, "data", str(data))
        assert "products-eu" in run(ASK, trees[pipeline], tmp_path, "data", str(data), "same-version")
        if len({run(PATTERNS, tree, tmp_path) for tree in trees.values()}) == 1:
            assert "products-eu" in run(ASK, trees[agent], tmp_path, "data", str(data), "other-version")
            assert "products-eu" in run(ASK, trees[agent], tmp_path, "relay", f"http://127.0.0.1:{port}", "by-relay")


def test_the_folder_of_the_old_version_keeps_what_it_knows(trees: dict[str, Path], tmp_path: Path) -> None:
    data = tmp_path / "lore"
    with up(trees["old"], data):
        run(LEARN, trees["old"], tmp_path, "data", str(data))
        run(ASK, trees["old"], tmp_path, "data", str(data), "before")
    with up(trees["new"], data):
        assert "products-eu" in run(ASK, trees["new"], tmp_path, "data", str(data), "after")
