"""Compare a topic with its specification, and decide which differences may be changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from aiokafka.admin import NewTopic

from fleetlore.wire.topics import TopicSpec

__all__ = ["Allowed", "Difference"]

_Kind = Literal["create", "partitions", "replication", "config"]
_State = Literal["open", "refused", "unsupported", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference between a topic and its specification.

    Attributes:
        setting: name of the setting, for `config`.
        found: empty if there is none, or if the broker does not return it.
        state: `open`: `apply` changes it; `refused`, `unsupported`: it does not, for the reason `why`.
    """

    topic: str
    kind: _Kind
    found: str
    stated: str
    setting: str = ""
    state: _State = "open"
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Risky changes that `apply` may make.

    Attributes:
        grow_keyed: add partitions to keyed topics, whose keys then go to other partitions than before.
        delete: change settings so that the broker may delete records that it keeps now.
    """

    grow_keyed: bool = False
    delete: bool = False


class Found(NamedTuple):
    """A topic as the broker has it."""

    partitions: int
    replication: int
    configs: Mapping[str, str] | None  # None: the broker does not return them
    set_on_topic: Mapping[str, str]


def topic_differences(new: NewTopic, spec: TopicSpec, found: Found, allowed: Allowed) -> list[Difference]:
    """Return how an existing topic differs from `new`, the topic that would be created."""
    differences = []
    if found.partitions != new.num_partitions:
        why = ""
        if found.partitions > new.num_partitions:
            why = "partitions cannot be taken away"
        elif spec.keyed and not allowed.grow_keyed:
            why = (
                "a key would go to another partition than before: sessions would be split, and two workers would write "
                "one pattern. With no agent and no worker running and nothing left to read, --grow-keyed does it"
            )
        differences.append(
            Difference(
                topic=new.name,
                kind="partitions",
                found=str(found.partitions),
                stated=str(new.num_partitions),
                state="refused" if why else "open",
                why=why,
            )
        )
    if found.replication != new.replication_factor:
        differences.append(
            Difference(
                topic=new.name,
                kind="replication",
                found=str(found.replication),
                stated=str(new.replication_factor),
                state="refused",
                why="replicas are moved with kafka-reassign-partitions",
            )
        )
    for setting, stated in new.topic_configs.items():
        there = None if found.configs is None else found.configs.get(setting)
        if there == stated:
            continue
        state: _State = "open"
        why = ""
        if setting == "min.insync.replicas" and found.replication < new.replication_factor:
            # Two of one replica would refuse every write.
            state, why = "refused", "there are not enough replicas yet"
        elif there is None:
            state, why = "unsupported", "this broker does not return it"
        elif _may_delete(setting, there, stated) and not allowed.delete:
            state, why = "refused", "the broker may delete records that it keeps now; --allow-delete does it"
        differences.append(
            Difference(
                topic=new.name, kind="config", setting=setting, found=there or "", stated=stated, state=state, why=why
            )
        )
    return differences


def _may_delete(setting: str, found: str, stated: str) -> bool:
    """Return whether a change makes the broker keep less."""
    if setting == "retention.ms":
        # -1 means for ever.
        return int(found) < 0 or 0 <= int(stated) < int(found)
    return setting == "cleanup.policy"
