"""Run `fleetlore topics apply`, `acls` and `principal`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fleetlore.cli.shared import Broker, Data, Json, ask, command, connection, group, print_json, print_table
from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.wire.lore import HISTORY
from fleetlore.wire.topics import ADAPTER_TOPICS, PREFIX, TOPICS, topic

if TYPE_CHECKING:
    from sinks.topics import Allowed, Difference

__all__ = ["register"]

# In every command, 1 is an error and 2 wrong usage.
DIFFERENCES_REMAIN = 3

_Tenants = Annotated[
    list[str] | None,
    typer.Option(
        "--tenant", help="Tenant whose topics these are; repeat for several.", show_default="FLEETLORE_TENANTS"
    ),
]
_ALL = tuple(spec.name for spec in TOPICS)
# Operations of a role on a tenant's topics. Read and Write include Describe.
AGENT = {"Write": ("events", "adapters.acks"), "Read": ("patterns", "items", "decisions", *ADAPTER_TOPICS)}
_WORKER = {
    "Read": (
        *("events", "feedback", "observations", "trajectories", "judgments", "candidates", "erasures", "decisions"),
        *("patterns", "items"),
    ),
    "Write": ("observations", "patterns", "trajectories", "judgments", "candidates", "items", "dead-letters"),
    # It creates missing topics, and ends if topics change.
    "Create": _ALL,
    "Describe": _ALL,
    "DescribeConfigs": _ALL,
}
# Corrects how sessions ended.
_REVIEWER = {"Write": ("feedback",)}
# A relay that takes hints of persons, whom its tokens prove.
_AUTHOR = {"Write": (*AGENT["Write"], "decisions", "decisions.history"), "Read": AGENT["Read"]}
_TRAINER = {
    "Read": ("trajectories", "judgments", "erasures", *ADAPTER_TOPICS, "adapters.acks"),
    "Write": ADAPTER_TOPICS,
}
_OPERATOR = {each: _ALL for each in ("Read", "Write", "Create", "Alter", "AlterConfigs", "DescribeConfigs")}
_OPERATOR["Delete"] = (HISTORY,)  # an erasure replaces its records


def register(app: typer.Typer) -> None:
    topics = group(app, "topics")
    topics.info.help = "Create, update and describe topics; print who may use them."
    for each in (apply, acls, principal):
        topics.command()(each)


@command
def apply(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report the differences and change nothing.")] = False,
    tenant: _Tenants = None,
    grow_keyed: Annotated[
        bool, typer.Option("--grow-keyed", help="Add partitions also to keyed topics, which moves keys.")
    ] = False,
    allow_delete: Annotated[
        bool, typer.Option("--allow-delete", help="Also change settings that let the broker delete records.")
    ] = False,
    broker: Broker = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Create missing topics and correct their settings.

    Settings that differ from the documented ones are changed. Empty topics of lore are filled from the vector store.

    Exit code: 0 if everything matches in the end; 3 if differences remain, after a dry run or because a change was
    refused or is impossible on the broker.
    """
    settings = connection(broker, data)
    if tenant:
        settings = settings.with_(tenants=tuple(tenant))
    from sinks.topics import Allowed

    differences = ask(_apply(settings, dry_run, Allowed(grow_keyed=grow_keyed, delete=allow_delete)))
    published = 0 if dry_run else ask(_publish(settings))
    remain = sum(each.state != "done" for each in differences)
    if json:
        stated = {"broker": settings.broker, "dry_run": dry_run, "in_sync": not remain, "published": published}
        print_json(stated | {"differences": [asdict(each) for each in differences]})
    else:
        _show(differences, dry_run, remain)
        if published:
            typer.echo(f"\n{published} patterns and items of the store were published again.")
    if remain:
        raise typer.Exit(DIFFERENCES_REMAIN)


@command
def acls(tenant: _Tenants = None) -> None:
    """Print each role's ACLs for a secured cluster.

    The lines are commands of Kafka's own tool. Roles are agents and reviewers of a tenant, authors (a relay that takes
    hints of persons), workers, trainer and operators. Users are called fleetlore-agent-TENANT,
    fleetlore-reviewer-TENANT, fleetlore-author-TENANT, fleetlore-worker, fleetlore-trainer and fleetlore-operator.
    Every topic is named in full, so no tenant's list covers another's topics.
    """
    settings = Settings.from_env(tenants=tuple(tenant) if tenant else None)
    for access in accesses(settings.tenants, settings.group):
        typer.echo(shlex.join(_command(access, settings.broker)))


@command
def principal(
    name: Annotated[str, typer.Argument(help="Principal of the agents NAME, NAME:1, …; `*` for a relay with tokens.")],
) -> None:
    """Print the key that a principal signs its events with.

    Its agents need it as FLEETLORE_PRINCIPAL_KEY. The command derives it from the workers' key, which must be set here.
    """
    from fleetlore.wire.principals import Principals

    known = Principals.of(Settings.from_env().principal_key)
    if known is None:
        raise ConfigError("set FLEETLORE_PRINCIPAL_KEY or FLEETLORE_PRINCIPAL_KEY_FILE to that of the workers")
    typer.echo(known.key_of(name))


def _show(differences: list[Difference], dry_run: bool, remain: int) -> None:
    if not differences:
        typer.echo("All topics match.")
        return
    said = {"open": "to do", "done": "done"}
    columns = ["~TOPIC", "WHAT", "FOUND", "STATED", "STATE"]
    rows = [
        (each.topic, each.setting or each.kind, each.found or "-", each.stated, said.get(each.state, each.state))
        for each in differences
    ]
    print_table(columns, rows)
    for what, why in dict.fromkeys((each.setting or each.kind, each.why) for each in differences if each.why):
        typer.echo(f"\n{what}: {why}.")
    if dry_run:
        typer.echo("\nNothing was changed: this was a dry run.")
    elif remain:
        typer.echo(f"\n{remain} of {len(differences)} differences remain.")


async def _apply(settings: Settings, dry_run: bool, allowed: Allowed) -> list[Difference]:
    from sinks.topics import TopicAdmin

    async with TopicAdmin(settings).connected() as admin:
        differences = await admin.compare(allowed)
        if dry_run:
            return differences
        keyed = [each for each in differences if each.kind == "partitions" and each.state == "open"]
        if allowed.grow_keyed and keyed:
            # Refused while a worker runs.
            await admin.accept({each.topic: (0, int(each.found)) for each in keyed})
        differences = await admin.apply(differences)
        if allowed.grow_keyed and (grown := await admin.grown()):
            await admin.accept(grown)
        return differences


async def _publish(settings: Settings) -> int:
    from fleetlore.errors import StoreUnavailable
    from streams.offline.republish import fill_empty

    try:
        return await fill_empty(settings)
    except StoreUnavailable as error:
        typer.echo(f"Topics of lore are empty, and the store cannot refill them: {error}", err=True)
        return 0


@dataclass(frozen=True, slots=True)
class _Access:
    """Only the groups of backfills, named at run time, are `prefixed`."""

    user: str
    operations: tuple[str, ...]
    kind: Literal["topic", "group"]
    names: tuple[str, ...]
    prefixed: bool = False


def accesses(tenants: Sequence[str], group: str) -> list[_Access]:
    """Return the rights of a fleet: one user for each tenant's agents, reviewers and authors, and for each server role.

    Every topic is named in full: by a prefix, an agent that may read `fleetlore.a` could read the tenant `ab` too.
    """
    roles = (("agent", AGENT), ("reviewer", _REVIEWER), ("author", _AUTHOR))
    made: list[_Access] = []
    for role, does in roles:
        for tenant in tenants:
            made += _topics(f"{PREFIX}-{role}-{tenant}", does, [tenant])
    worker, trainer, operator = (f"{PREFIX}-{role}" for role in ("worker", "trainer", "operator"))
    made += _topics(worker, _WORKER, tenants)
    made.append(_Access(worker, ("Read",), "group", (group,)))
    made += _topics(trainer, _TRAINER, tenants)
    made += _topics(operator, _OPERATOR, tenants)
    # To read the workers' commits, and to record that topics were grown.
    made.append(_Access(operator, ("Read",), "group", (group,)))
    made.append(_Access(operator, ("Read",), "group", (f"{group}.backfill.",), prefixed=True))
    return made


def _topics(user: str, does: Mapping[str, tuple[str, ...]], tenants: Sequence[str]) -> Iterator[_Access]:
    operations = {name: tuple(operation for operation, names in does.items() if name in names) for name in _ALL}
    for same in dict.fromkeys(operations.values()):
        if same:
            names = [topic(tenant, name) for tenant in tenants for name in _ALL if operations[name] == same]
            yield _Access(user, same, "topic", tuple(names))


def _command(access: _Access, bootstrap: str) -> Iterator[str]:
    yield from ("kafka-acls.sh", "--bootstrap-server", bootstrap, "--command-config", "admin.properties", "--add")
    yield from ("--allow-principal", f"User:{access.user}")
    for operation in access.operations:
        yield from ("--operation", operation)
    for name in access.names:
        yield from (f"--{access.kind}", name)
    yield from ("--resource-pattern-type", "prefixed" if access.prefixed else "literal")
