"""Print the table at the end of a chaos run."""

import os
from pathlib import Path

import pytest

from tests.chaos.accounting import Account, put_table, table

ACCOUNTS = pytest.StashKey[list[Account]]()


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
        put_table(Path(page), "chaos", [f"Seed {os.environ.get('CHAOS_SEED', '1')}.", "", *lines])
