"""Every command says what it is for in one short line, and what is missing in another."""

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from click.testing import CliRunner as ClickRunner
from typer.testing import CliRunner

from fleetlore.cli.app import build_app

LONGEST = 60
GROUPS = ([], ["adapters"], ["backfill"], ["dead-letters"], ["ingest"], ["topics"])


def commands(of: Any, name: str = "fleetlore") -> Iterator[tuple[str, str]]:
    for each, command in of.commands.items():
        yield f"{name} {each}", " ".join((command.help or "").split())
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} {each}")


def test_the_first_sentence_is_short() -> None:
    said = dict(commands(typer.main.get_command(build_app())))
    assert len(said) > 40
    long = {name: text for name, text in said.items() if len(text.partition(". ")[0].rstrip(".")) > LONGEST}
    assert not long


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_help_shows_all_of_it_at_100_columns(group: list[str]) -> None:
    shown = CliRunner().invoke(build_app(), [*group, "--help"], env={"COLUMNS": "100"}, terminal_width=100).stdout
    assert shown.count("\n") > 8 and "..." not in shown.replace("COMMAND [ARGS]...", "")


def test_each_option_names_its_value_in_one_style() -> None:
    odd, command = [], typer.main.get_command(build_app())
    for name, _ in commands(command):
        shown = ClickRunner().invoke(command, [*name.split()[1:], "--help"], terminal_width=100).stdout
        odd += [line for line in shown.splitlines() if re.search(r"<(?:int|float|str|list|path|file)\b", line)]
    assert not odd


def test_a_worker_without_a_broker_says_so_in_one_line() -> None:
    arguments = [sys.executable, "-m", "fleetlore.cli.main", "worker", "--broker", "127.0.0.1:1"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=150, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("fleetlore: no Kafka broker at 127.0.0.1:1; name ")
