"""The benchmark of hints counts every agent and every hint."""

from typer.testing import CliRunner

from benchmarks.command import command_app
from benchmarks.hints import hints, reached


async def test_each_hint_reaches_each_agent() -> None:
    seconds = await reached(agents=3, count=2)
    assert len(seconds) == 6 and all(each > 0 for each in seconds)


def test_the_figure_is_printed() -> None:
    said = CliRunner().invoke(command_app(hints), ["--agents", "1", "--hints", "1", "--json"])
    assert said.exit_code == 0 and "1 hints to 1 agents: p50" in said.stdout and '"p99":' in said.stdout
