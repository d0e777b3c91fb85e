"""State what each role of a fleet does on a cluster, and print it as access lists of Apache Kafka.

Every name is literal: by prefix, whoever may read `fleetlore.a` would read the tenant `ab` too.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fleetlore.wire.topics import PREFIX, TOPICS, topic

_ALL = tuple(spec.name for spec in TOPICS)
_VERSIONS = ("adapters.weights", "adapters.manifests", "adapters.pointers")
# What a role does to the topics of a tenant, besides looking at how they are made, which reading and writing allow.
AGENT = {"Write": ("events", "adapters.acks"), "Read": ("patterns", "items", "decisions", *_VERSIONS)}
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
# Who runs the commands: topics, backfill, decisions, erase, redrive, rollback.
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
