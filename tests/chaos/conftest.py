"""The table at the end of a chaos run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.accounting import Account, table

ACCOUNTS = pytest.StashKey[list[Account]]()

PAGE = """# Chaos

`make chaos` runs the pipeline while its parts are killed, stopped, frozen, slowed down and cut off, by a seeded random
scenario at a time, and writes this page; `make chaos-short` does a little of each. Every scenario has a tenant of its own. *Lost* are events that the broker has acknowledged and that are neither behind a judgment nor among
the dead letters; *doubled* are events that count more than once; the *state* is the hash of all patterns, judgments and memory
items, compared with that of an undisturbed run of the same events. *Kills* are processes ended by SIGKILL: workers, trainer, emitter.

Seed {seed}.

{table}
"""


@pytest.fixture(scope="session")
def accounts(request: pytest.FixtureRequest) -> list[Account]:
    """The lines of the table, as they are found."""
    return request.config.stash.setdefault(ACCOUNTS, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    accounts = config.stash.get(ACCOUNTS, [])
    if not accounts:
        return
    lines = table(accounts)
    terminalreporter.section("chaos")
    terminalreporter.write_line("\n".join(lines))
    if page := os.environ.get("CHAOS_PAGE"):
        Path(page).write_text(PAGE.format(seed=os.environ.get("CHAOS_SEED", "1"), table="\n".join(lines)))
