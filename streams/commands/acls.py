"""State each role's rights on a secured cluster, and print them as Apache Kafka ACLs.

Every name is literal: with prefixes, an agent that may read `fleetlore.a` could read the tenant `ab` too.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fleetlore.wire.topics import ADAPTER_TOPICS, PREFIX, TOPICS, topic

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
# Corrects how sessions ended. Agents may not.
_REVIEWER = {"Write": ("feedback",)}
# A relay that takes hints of persons, whom its tokens prove.
_AUTHOR = {"Write": (*AGENT["Write"], "decisions", "decisions.history"), "Read": AGENT["Read"]}
_TRAINER = {
    "Read": ("trajectories", "judgments", "erasures", *ADAPTER_TOPICS, "adapters.acks"),
    "Write": ADAPTER_TOPICS,
}
# Runs the commands: topics, backfill, decisions, erase, redrive, rollback.
_OPERATOR = {each: _ALL for each in ("Read", "Write", "Create", "Alter", "AlterConfigs", "DescribeConfigs")}


@dataclass(frozen=True, slots=True)
class _Access:
    """Only the groups of backfills, named at run time, are `prefixed`."""

    user: str
    operations: tuple[str, ...]
    kind: Literal["topic", "group"]
    names: tuple[str, ...]
    prefixed: bool = False


def accesses(tenants: Sequence[str], group: str) -> list[_Access]:
    """Return the rights of a fleet: one user for each tenant's agents, reviewers and authors, and for each server
    role."""
    made = [access for tenant in tenants for access in _topics(f"{PREFIX}-agent-{tenant}", AGENT, [tenant])]
    made += [access for tenant in tenants for access in _topics(f"{PREFIX}-reviewer-{tenant}", _REVIEWER, [tenant])]
    made += [access for tenant in tenants for access in _topics(f"{PREFIX}-author-{tenant}", _AUTHOR, [tenant])]
    worker, trainer, operator = (f"{PREFIX}-{role}" for role in ("worker", "trainer", "operator"))
    made += _topics(worker, _WORKER, tenants)
    made.append(_Access(worker, ("Read",), "group", (group,)))
    made += _topics(trainer, _TRAINER, tenants)
    made += _topics(operator, _OPERATOR, tenants)
    # To read the workers' commits, and to record that topics were grown.
    made.append(_Access(operator, ("Read",), "group", (group,)))
    made.append(_Access(operator, ("Read",), "group", (f"{group}.backfill.",), prefixed=True))
    return made


def as_commands(needed: Iterable[_Access], bootstrap: str) -> str:
    """Return shell lines for Kafka's own tool. `admin.properties` names the user that grants the rights."""
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
