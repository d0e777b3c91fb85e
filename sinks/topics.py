"""Compare a broker's topics with `fleetlore.wire.topics.TOPICS`, change them to match, and watch them.

A worker creates missing topics, but changes no existing topic. It ends if one is grown or made anew: more partitions
move keys, and an automatic topic is not compacted. Commits record the partition count.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal, NamedTuple, Self

from aiokafka import OffsetAndMetadata, TopicPartition
from aiokafka.admin import NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    CommitFailedError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    TopicAlreadyExistsError,
    UnsupportedVersionError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest

from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable, ConfigError, TopicsChanged
from fleetlore.kafka.client import ANSWER_SECONDS, backoff, connected, make_admin, make_consumer, no_broker
from fleetlore.kafka.read import committed_offsets
from fleetlore.wire.topics import TOPICS, TopicSpec, topic
from sinks.producer import chunked

__all__ = ["Allowed", "Difference", "TopicAdmin", "ensure_topics", "refuse_grown", "watch_topics"]

# The embedded broker supports neither change.
_UNSUPPORTED = (IncompatibleBrokerVersion, UnsupportedVersionError)
_NOT_BY_THIS_BROKER = "this broker cannot do it"
# Source of a setting in `DescribeConfigs`: the topic itself.
SET_ON_TOPIC = 1
_VISIBLE_SECONDS = 30.0
# Kafka refuses requests above 10,000 partitions, and a time-out repeats one.
CHUNK_PARTITIONS = 1_000

_Kind = Literal["create", "partitions", "replication", "config"]
_State = Literal["open", "refused", "unsupported", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    topic: str
    kind: _Kind
    found: str
    stated: str
    setting: str = ""
    state: _State = "open"
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    grow_keyed: bool = False
    delete: bool = False


class Found(NamedTuple):
    partitions: int
    replication: int
    configs: Mapping[str, str] | None  # None if the broker does not return them
    set_on_topic: Mapping[str, str]


def _topic_differences(new: NewTopic, spec: TopicSpec, found: Found, allowed: Allowed) -> list[Difference]:
    def differs(kind: _Kind, there: object, stated: object, why: str, state: _State, setting: str = "") -> Difference:
        return Difference(
            topic=new.name, kind=kind, found=str(there), stated=str(stated), setting=setting, state=state, why=why
        )

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
        state: _State = "refused" if why else "open"
        differences.append(differs("partitions", found.partitions, new.num_partitions, why, state))
    if found.replication != new.replication_factor:
        why = "replicas are moved with kafka-reassign-partitions"
        differences.append(differs("replication", found.replication, new.replication_factor, why, "refused"))
    for setting, stated in new.topic_configs.items():
        there = None if found.configs is None else found.configs.get(setting)
        if there == stated:
            continue
        state, why = "open", ""
        if setting == "min.insync.replicas" and found.replication < new.replication_factor:
            # min.insync.replicas=2 with one replica would refuse every write.
            state, why = "refused", "there are not enough replicas yet"
        elif there is None:
            state, why = "unsupported", "this broker does not return it"
        elif _may_delete(setting, there, stated) and not allowed.delete:
            state, why = "refused", "the broker may delete records that it keeps now; --allow-delete does it"
        differences.append(differs("config", there or "", stated, why, state, setting))
    return differences


def _may_delete(setting: str, found: str, stated: str) -> bool:
    if setting == "retention.ms":
        # -1 means unlimited
        return int(found) < 0 or 0 <= int(stated) < int(found)
    return setting == "cleanup.policy"


class TopicAdmin:
    def __init__(self, settings: Settings, client: Any = None) -> None:
        self._settings = settings
        self._client = client or make_admin(settings.cluster)
        self._stated = {topic(tenant, spec.name): spec for tenant in settings.tenants for spec in TOPICS}

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Self]:
        try:
            async with connected(self._client):
                yield self
        except KafkaConnectionError as error:
            raise no_broker(self._settings.cluster, error) from error
        except KafkaError as error:
            raise BrokerUnavailable(f"the broker at {self._settings.broker}: {error!r}") from error

    async def missing(self) -> list[str]:
        there = set(await self._client.list_topics())
        return [name for name in self._stated if name not in there]

    async def create_missing(self) -> list[str]:
        missing = await self.missing()
        await self._create(missing)
        # Include topics that another worker has just created.
        await self._shown_by_all(self._stated)
        return missing

    async def grown(self) -> dict[str, tuple[int, int]]:
        """Return keyed topics that grew: partitions at the last commit and now."""
        commits = await self._commits()
        now = Counter(tp.topic for tp in commits)
        before = {tp.topic: int(each.metadata) for tp, each in commits.items() if (each.metadata or "").isdigit()}
        return {name: (count, now[name]) for name, count in before.items() if count != now[name]}

    async def accept(self, grown: Mapping[str, tuple[int, int]]) -> None:
        group = self._settings.group
        noted = {
            tp: OffsetAndMetadata(each.offset, str(grown[tp.topic][1]))
            for tp, each in (await self._commits()).items()
            if tp.topic in grown and each.offset >= 0
        }
        if not noted:
            return
        async with connected(make_consumer(self._settings.cluster, group=group)) as consumer:
            consumer.assign(list(noted))
            try:
                await consumer.commit(noted)
            except CommitFailedError:
                raise ConfigError(f"a worker of the group {group} is at work: stop all, then grow its topics") from None

    async def _commits(self) -> dict[TopicPartition, OffsetAndMetadata]:
        keyed = [
            TopicPartition(each["topic"], part["partition"])
            for each in await self._client.describe_topics()
            if (spec := self._stated.get(each["topic"])) is not None and spec.keyed
            for part in each["partitions"]
        ]
        return await committed_offsets(self._client, self._settings.group, keyed)

    async def compare(self, allowed: Allowed) -> list[Difference]:
        found = await self.read()
        differences = []
        for name, spec in self._stated.items():
            new = new_topic(name, spec, self._settings)
            if name in found:
                differences += _topic_differences(new, spec, found[name], allowed)
            else:
                stated = f"partitions {new.num_partitions}, replicas {new.replication_factor}, {spec.kept}"
                differences.append(Difference(topic=name, kind="create", found="", stated=stated))
        return differences

    async def apply(self, differences: Iterable[Difference]) -> list[Difference]:
        differences = list(differences)
        created = [each.topic for each in differences if each.kind == "create"]
        await self._create(created)
        await self._shown_by_all(created)
        configs: dict[str, list[Difference]] = {}
        done = []
        for each in differences:
            if each.state != "open":
                done.append(each)
            elif each.kind == "create":
                done.append(replace(each, state="done"))
            elif each.kind == "partitions":
                done.append(await self._grow(each))
            else:
                configs.setdefault(each.topic, []).append(each)
        for name, changes in configs.items():
            done += await self._alter(name, changes)
        return done

    async def _create(self, names: list[str]) -> None:
        if not names:
            return
        cluster = await self._client.describe_cluster()
        if cluster["controller_id"] not in {broker["node_id"] for broker in cluster["brokers"]}:
            # aiokafka would raise AttributeError, and an automatically created topic is not compacted
            raise BrokerUnavailable(
                f"the cluster at {self._settings.broker} has no controller that could create topics"
            )
        new = (new_topic(name, self._stated[name], self._settings) for name in names)
        for topics in chunked(new, CHUNK_PARTITIONS, attrgetter("num_partitions")):
            response = await self._client.create_topics(topics)
            for name, code, *_ in response.topic_errors:
                if code and for_code(code) is not TopicAlreadyExistsError:
                    raise self._refused(f"did not create {name}", code)

    async def _shown_by_all(self, names: Collection[str]) -> None:
        """Wait until every broker knows the topics: a client may ask any."""
        loop, unseen = asyncio.get_running_loop(), set(names)
        last = loop.time() + _VISIBLE_SECONDS
        for delay in backoff():
            if not (now := set(names) - await self._shown()):
                return
            if len(now) < len(unseen):
                unseen, last = now, loop.time() + _VISIBLE_SECONDS
            if loop.time() > last:
                raise BrokerUnavailable(
                    f"the broker at {self._settings.broker} does not show the topics that it created; may this user "
                    "see them?"
                )
            await asyncio.sleep(delay)

    async def _shown(self) -> set[str]:
        cluster = await self._client.describe_cluster()
        answers = await asyncio.gather(*(self._shown_by(each["node_id"]) for each in cluster["brokers"]))
        known = [each for each in answers if each is not None]
        return set.intersection(*known) if known else set()

    async def _shown_by(self, node: int) -> set[str] | None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                # aiokafka's own call asks any broker
                answer = await self._client._send_request_to_node(node, MetadataRequest())
        except (TimeoutError, KafkaError):
            return None
        return {each["topic"] for each in answer.to_object()["topics"]}

    async def read(self) -> dict[str, Found]:
        """Return the broker's state of our topics. Ask for all: the embedded broker creates a named one."""
        there = {each["topic"]: each["partitions"] for each in await self._client.describe_topics()}
        names = [name for name in self._stated if name in there]
        found = {
            name: Found(len(there[name]), min(len(each["replicas"]) for each in there[name]), None, {})
            for name in names
        }
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        try:
            answers = await self._client.describe_configs(resources) if names else []
        except _UNSUPPORTED:
            answers = []
        for code, _, _, name, entries in (each for answer in answers for each in answer.resources):
            if code:
                raise self._refused(f"did not return the settings of {name}", code)
            own = {entry[0]: entry[1] for entry in entries if entry[3] == SET_ON_TOPIC}
            found[name] = found[name]._replace(configs={entry[0]: entry[1] for entry in entries}, set_on_topic=own)
        return found

    async def _grow(self, difference: Difference) -> Difference:
        try:
            await self._client.create_partitions({difference.topic: NewPartitions(int(difference.stated))})
        except _UNSUPPORTED:
            return replace(difference, state="unsupported", why=_NOT_BY_THIS_BROKER)
        return replace(difference, state="done")

    async def _alter(self, name: str, changes: list[Difference]) -> list[Difference]:
        # The request replaces all of the topic's settings, so repeat those that others set.
        kept = dict((await self.read())[name].set_on_topic)
        kept |= {each.setting: each.stated for each in changes}
        try:
            answers = await self._client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, kept)])
        except _UNSUPPORTED:
            return [replace(each, state="unsupported", why=_NOT_BY_THIS_BROKER) for each in changes]
        for code, *_ in (each for answer in answers for each in answer.resources):
            if code:
                raise self._refused(f"did not change the settings of {name}", code)
        return [replace(each, state="done") for each in changes]

    def _refused(self, what: str, code: int) -> BrokerUnavailable:
        return BrokerUnavailable(f"the broker at {self._settings.broker} {what}: {for_code(code).__name__}")


async def ensure_topics(settings: Settings) -> list[str]:
    async with TopicAdmin(settings).connected() as admin:
        return await admin.create_missing()


def new_topic(name: str, spec: TopicSpec, settings: Settings) -> NewTopic:
    partitions, configs = spec.partitions or settings.partitions, spec.configs(settings.replication)
    return NewTopic(name, partitions, settings.replication, topic_configs=configs)


log = logging.getLogger(__name__)

WATCH_SECONDS = 30.0


async def refuse_grown(settings: Settings) -> None:
    """Raise TopicsChanged if a keyed topic has grown since the last commit: states would have two writers."""
    async with TopicAdmin(settings).connected() as admin:
        grown = await admin.grown()
    for name, (before, now) in sorted(grown.items()):
        raise TopicsChanged(
            f"topic {name} had {before} partitions when the group {settings.group} last committed and has {now} now: "
            "keys have moved, and one pattern would have two writers. Stop all agents and workers; `fleetlore topics "
            "apply --grow-keyed` then takes the new number for good. Sessions that were open are split"
        )


async def watch_topics(settings: Settings, seconds: float = WATCH_SECONDS) -> None:
    before: Mapping[str, str] | None = None
    while True:
        try:
            now = await _shapes(settings)
        except BrokerUnavailable as error:  # the delivery and the client report this too
            log.info("topics could not be compared: %s", error)
        else:
            if before is not None and now != before:
                raise TopicsChanged(describe(before, now))
            before = now
        await asyncio.sleep(seconds)


def describe(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    name = min(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return (
        f"topic {name} had {before.get(name, 'no partition')} and has {now.get(name, 'no partition')} now; "
        "the worker ends and begins anew. `fleetlore topics apply --dry-run` says how topics should be"
    )


async def _shapes(settings: Settings) -> dict[str, str]:
    async with TopicAdmin(settings).connected() as admin:
        found = await admin.read()

    def shape(each: Found) -> str:
        policy = (each.configs or {}).get("cleanup.policy")
        return f"{each.partitions} partitions" + (f", cleanup.policy={policy}" if policy else "")

    return {name: shape(each) for name, each in found.items()}
