"""`topics apply`: what it says, what it does and how it ends."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from fleetlore.cli.app import build_app
from fleetlore.wire.topics import NAMES, topic
from streams.commands.topics import DIFFERENCES_REMAIN, register
from streams.embedded.broker import EmbeddedBroker


def run(broker: EmbeddedBroker, *arguments: str) -> Result:
    app = build_app()
    # Also where the package was not installed again since the entry point was added.
    register(app)
    return CliRunner().invoke(app, ["topics", "apply", "--broker", broker.address, *arguments])


def test_a_dry_run_says_what_a_run_does_and_ends_in_another_code(broker: EmbeddedBroker, tenant: str) -> None:
    tenants = ("--tenant", tenant, "--tenant", f"{tenant}-2")
    for _ in range(2):
        dry = run(broker, *tenants, "--dry-run")
        assert dry.exit_code == DIFFERENCES_REMAIN, dry.output
        assert "dry run" in dry.stdout
        lines = [line.split() for line in dry.stdout.splitlines() if line.startswith("fleetlore.")]
        assert {line[0] for line in lines} == {topic(t, name) for t in (tenant, f"{tenant}-2") for name in NAMES}
        assert {tuple(line[-2:]) for line in lines} == {("to", "do")}
    done = run(broker, *tenants)
    assert done.exit_code == 0, done.output
    assert done.stdout.count(" done") == 2 * len(NAMES)
    for arguments in ((), ("--dry-run",)):
        again = run(broker, *tenants, *arguments)
        assert (again.exit_code, again.stdout) == (0, "All topics match.\n")


@pytest.mark.tansu
def test_what_remains_is_told_once_and_is_in_the_exit_code(broker: EmbeddedBroker, tenant: str) -> None:
    run(broker, "--tenant", tenant, "--partitions", "2")
    more = run(broker, "--tenant", tenant, "--partitions", "3")
    assert more.exit_code == DIFFERENCES_REMAIN
    assert more.stdout.count("--grow-keyed does it") == 1
    assert more.stdout.count("this broker cannot do it") == 1, "the embedded broker adds no partitions"
    document = json.loads(run(broker, "--tenant", tenant, "--partitions", "3", "--grow-keyed", "--json").stdout)
    assert (document["in_sync"], document["dry_run"]) == (False, False)
    assert {(each["kind"], each["found"], each["stated"], each["state"]) for each in document["differences"]} == {
        ("partitions", "2", "3", "unsupported")
    }


def test_no_broker_is_an_error_and_nonsense_is_wrong_usage(broker: EmbeddedBroker, unused_address: str) -> None:
    app = build_app()
    register(app)
    gone = CliRunner().invoke(app, ["topics", "apply", "--broker", unused_address])
    assert gone.exit_code == 1 and unused_address in gone.stderr
    assert run(broker, "--partitions", "0").exit_code == 2


@pytest.mark.parametrize("arguments", [("--tenant", "NO"), ("--tenant", "a.b")])
def test_a_name_that_is_no_tenant_is_refused(broker: EmbeddedBroker, arguments: tuple[str, ...]) -> None:
    result = run(broker, *arguments)
    assert result.exit_code == 1 and "must be 1 to 63" in result.stderr
