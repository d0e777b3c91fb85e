"""The help of each group is shown whole, and a command that lacks a broker says so in one line."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from fleetlore.cli.app import build_app

GROUPS = ([], ["adapters"], ["backfill"], ["dead-letters"], ["ingest"], ["topics"])


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_help_shows_all_of_it_at_100_columns(group: list[str]) -> None:
    shown = CliRunner().invoke(build_app(), [*group, "--help"], env={"COLUMNS": "100"}, terminal_width=100).stdout
    assert shown.count("\n") > 8 and "..." not in shown.replace("COMMAND [ARGS]...", "")


def test_a_worker_without_a_broker_says_so_in_one_line() -> None:
    arguments = [sys.executable, "-m", "fleetlore.cli.main", "worker", "--broker", "127.0.0.1:1"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=150, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("fleetlore: no Kafka broker at 127.0.0.1:1; name ")
