"""Run `fleetlore topics apply`, `acls` and `principal`: make a broker's topics, access lists and keys as stated."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fleetlore.cli.options import Broker, Data, Json, connection, group
from fleetlore.cli.output import ask, print_json, print_table
from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.wire.topics import PREFIX, TOPICS, topic

if TYPE_CHECKING:
    from sinks.topics import Allowed, Difference

__all__ = ["accesses", "register"]

# 1 is an error and 2 wrong usage, in every command.
DIFFERENCES_REMAIN = 3

_Tenants = Annotated[
    list[str] | None,
    typer.Option(
        "--tenant", help="Tenant whose topics these are; repeat for several.", show_default="FLEETLORE_TENANTS"
    ),
]

_ALL = tuple(spec.name for spec in TOPICS)
_VERSIONS = ("adapters.weights", "adapters.manifests", "adapters.pointers")
# What a role does to the topics of a tenant, besides looking at how they are made, which reading and writing allow.
AGENT = {"Write": ("events", "definitions", "adapters.acks"), "Read": ("patterns", "items", "decisions", *_VERSIONS)}
_WORKER = {
    "Read": (
        *("events", "feedback", "observations", "trajectories", "judgments", "candidates", "erasures", "decisions"),
        *("patterns", "items"),  # what a former owner may have written over
    ),
    "Write": ("observations", "patterns", "trajectories", "judgments", "candidates", "items", "dead-letters"),
    # It makes the topics that are missing, and ends where they change.
    "Create": _ALL,
    "Describe": _ALL,
    "DescribeConfigs": _ALL,
}
# Corrects how sessions ended: no agent may.
_REVIEWER = {"Write": ("feedback",)}
_TRAINER = {"Read": ("trajectories", "judgments", "erasures", *_VERSIONS, "adapters.acks"), "Write": _VERSIONS}
# Who runs the commands: topics, backfill, decisions, erase, redrive, replay, rollback, verify.
_OPERATOR = {each: _ALL for each in ("Read", "Write", "Create", "Alter", "AlterConfigs", "DescribeConfigs")}


@dataclass(frozen=True, slots=True)
class _Access:
    """What one user may do to some topics or groups.

    Attributes:
        user: the name that the cluster knows it by, after `User:`.
        operations: in Kafka's words.
        prefixed: the names are beginnings of names; only groups of backfills, which are named as they run.
    """

    user: str
    operations: tuple[str, ...]
    kind: Literal["topic", "group"]
    names: tuple[str, ...]
    prefixed: bool = False


def accesses(tenants: Sequence[str], group: str) -> list[_Access]:
    """What a fleet needs: a user for the agents of each tenant and one for its reviewers, one for workers, trainer and
    operators.

    Args:
        group: consumer group of the workers.
    """
    made = [access for tenant in tenants for access in _topics(f"{PREFIX}-agent-{tenant}", AGENT, [tenant])]
    made += [access for tenant in tenants for access in _topics(f"{PREFIX}-reviewer-{tenant}", _REVIEWER, [tenant])]
    worker, trainer, operator = (f"{PREFIX}-{role}" for role in ("worker", "trainer", "operator"))
    made += _topics(worker, _WORKER, tenants)
    made.append(_Access(worker, ("Read",), "group", (group,)))
    made += _topics(trainer, _TRAINER, tenants)
    made += _topics(operator, _OPERATOR, tenants)
    # To read where workers are, and to note there that topics were grown.
    made.append(_Access(operator, ("Read",), "group", (group,)))
    made.append(_Access(operator, ("Read",), "group", (f"{group}.backfill.",), prefixed=True))
    return made


def as_commands(needed: Iterable[_Access], bootstrap: str) -> str:
    """Lines for a shell that has Kafka's own tools; `admin.properties` says who gives these rights."""
    return "\n".join(shlex.join(_command(access, bootstrap)) for access in needed)


def as_strimzi(needed: Iterable[_Access]) -> str:
    """`KafkaUser` resources of Strimzi, in YAML; the cluster's name and the way to log in are to be adapted.

    Raises:
        ConfigError: two tenants differ in `_` and `-` alone, which a name in Kubernetes cannot.
    """
    users: dict[str, list[_Access]] = {}
    for access in needed:
        users.setdefault(access.user, []).append(access)
    if len({_resource(user) for user in users}) < len(users):
        raise ConfigError("two tenants differ in '_' and '-' alone: Strimzi has one user for both")
    return "---\n".join("\n".join(_kafka_user(user, of_user)) + "\n" for user, of_user in users.items())


def _topics(user: str, does: Mapping[str, tuple[str, ...]], tenants: Sequence[str]) -> Iterator[_Access]:
    """One access for all topics to which the same is done."""
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


def _resource(user: str) -> str:
    return user.replace("_", "-")


def _kafka_user(user: str, of_user: Iterable[_Access]) -> Iterator[str]:
    yield from ("apiVersion: kafka.strimzi.io/v1", "kind: KafkaUser", "metadata:", f"  name: {_resource(user)}")
    yield from ("  labels:", "    strimzi.io/cluster: my-cluster", "spec:")
    yield from ("  authentication:", "    type: scram-sha-512", "  authorization:", "    type: simple", "    acls:")
    for access in of_user:
        for name in access.names:
            resource = {
                "type": access.kind,
                "name": name,
                "patternType": "prefix" if access.prefixed else "literal",
            }
            yield f"      - resource: {json.dumps(resource)}"
            yield f"        operations: {json.dumps(access.operations)}"


def register(app: typer.Typer) -> None:
    """Add the commands to the group `topics` (entry point `topics.apply`)."""
    topics = group(app, "topics")
    topics.info.help = "Create, update and describe topics; print who may use them."
    topics.command("apply")(apply)
    topics.command("acls")(acls)
    topics.command("principal")(principal)


def apply(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report the differences and change nothing.")] = False,
    tenant: _Tenants = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, help="Partitions of topics that do not state their own.", show_default="FLEETLORE_PARTITIONS"
        ),
    ] = None,
    replication: Annotated[
        int | None, typer.Option(min=1, help="Replicas of each partition.", show_default="FLEETLORE_REPLICATION")
    ] = None,
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

    Those that differ from the documented ones are changed.

    Where a topic of lore is empty, what the vector store knows is published there again.

    Exit code: 0 if everything matches in the end; 3 if differences remain, after a dry run or because a change was
    refused or is impossible on the broker.
    """
    settings = connection(broker, data).with_(
        **{
            name: value
            for name, value in {
                "tenants": tuple(tenant) if tenant else None,
                "partitions": partitions,
                "replication": replication,
            }.items()
            if value is not None
        }
    )
    from sinks.topics import Allowed

    differences = ask(_apply(settings, dry_run, Allowed(grow_keyed=grow_keyed, delete=allow_delete)))
    published = 0 if dry_run else ask(_publish(settings))
    remain = sum(each.state != "done" for each in differences)
    if json:
        print_json(
            {
                "broker": settings.broker,
                "dry_run": dry_run,
                "in_sync": not remain,
                "published": published,
                "differences": [asdict(each) for each in differences],
            }
        )
    else:
        _show(differences, dry_run, remain)
        if published:
            typer.echo(f"\n{published} patterns and items of the store were published again.")
    if remain:
        raise typer.Exit(DIFFERENCES_REMAIN)


class _Format(StrEnum):
    """Who takes the access lists."""

    kafka = "kafka"
    strimzi = "strimzi"


def acls(
    format: Annotated[
        _Format, typer.Option(help="`kafka`: lines for Kafka's own tool; `strimzi`: KafkaUser resources.")
    ] = _Format.kafka,
    tenant: _Tenants = None,
) -> None:
    """Print what each role needs on a secured cluster.

    Roles are agents and reviewers of a tenant, workers, trainer and operators. Users are called fleetlore-agent-TENANT,
    fleetlore-reviewer-TENANT, fleetlore-worker, fleetlore-trainer and fleetlore-operator. Every topic is named in full,
    so no tenant's list covers another's topics.
    """

    settings = Settings.from_env(tenants=tuple(tenant) if tenant else None)
    needed = accesses(settings.tenants, settings.group)
    typer.echo(as_commands(needed, settings.broker) if format is _Format.kafka else as_strimzi(needed))


def principal(
    name: Annotated[str, typer.Argument(help="Of the agents NAME, NAME:1, NAME:2 …; `*` for a relay with tokens.")],
) -> None:
    """Print the key that a principal signs its events with.

    It is FLEETLORE_PRINCIPAL_KEY of its agents, made of that of the workers, which has to be set here.
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
    print_table(
        columns,
        [
            (
                each.topic,
                each.setting or each.kind,
                each.found or "-",
                each.stated,
                said.get(each.state, each.state),
            )
            for each in differences
        ],
    )
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
            await admin.accept(
                {each.topic: (0, int(each.found)) for each in keyed}
            )  # refused where a worker is at work
        differences = await admin.apply(differences)
        if allowed.grow_keyed and (grown := await admin.grown()):
            await admin.accept(grown)
        return differences


async def _publish(settings: Settings) -> int:
    """Fill the topics of lore that hold nothing with what the store knows; return the number of records."""
    from fleetlore.errors import StoreUnavailable
    from streams.offline.republish import fill_empty

    try:
        return await fill_empty(settings)
    except StoreUnavailable as error:
        typer.echo(f"Topics of lore are empty, and the store cannot say what belongs there: {error}", err=True)
        return 0
