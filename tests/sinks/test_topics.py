"""Creating topics on a real broker."""

import asyncio
from itertools import pairwise
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import ClusterAuthorizationFailedError, IncompatibleBrokerVersion, KafkaConnectionError
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka.read import observer, partitions_of
from fleetlore.wire.topics import TOPICS, topic
from sinks.producer import chunked
from sinks.topics import (
    CHUNK_PARTITIONS,
    SET_ON_TOPIC,
    Allowed,
    Difference,
    TopicAdmin,
    ensure_topics,
    new_topic,
)
from streams.embedded.broker import free_port
from tests.doubles.connections import ONE_SERVER


async def test_all_topics_of_all_tenants_are_created_with_their_partitions_and_what_exists_is_left(
    broker: EmbeddedBroker, tenant: str, make_topics: Any
) -> None:
    await make_topics(broker.address, tenant, "events", partitions=7)
    settings = Settings(broker=broker.address, tenants=(tenant, f"{tenant}-2"), partitions=3)
    made = {(each, spec): spec.partitions or 3 for each in settings.tenants for spec in TOPICS}
    created = await ensure_topics(settings)
    assert {topic(tenant, "events"), *created} == {topic(each, spec.name) for each, spec in made}
    assert topic(tenant, "events") not in created and len(created) == len(made) - 1
    assert await ensure_topics(settings.with_(partitions=8)) == []
    async with observer(broker.address) as consumer:
        for (each, spec), count in made.items():
            expected = 7 if (each, spec.name) == (tenant, "events") else count
            assert len(await partitions_of(consumer, topic(each, spec.name))) == expected


async def test_two_workers_that_start_together_do_not_mind_each_other(broker: EmbeddedBroker, tenant: str) -> None:
    settings = Settings(broker=broker.address, tenants=(tenant,), partitions=1)
    await asyncio.gather(*(ensure_topics(settings) for _ in range(3)))
    assert await ensure_topics(settings) == []


async def test_a_broker_that_is_away_is_said_to_be() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(BrokerUnavailable, match=f"no Kafka broker at {address}$"):
        await ensure_topics(Settings(broker=address))


async def test_a_broker_that_refuses_is_not_said_to_be_away() -> None:
    class Refusing:
        client = ONE_SERVER

        async def start(self) -> None: ...
        async def close(self) -> None: ...
        async def list_topics(self) -> list[str]:
            raise ClusterAuthorizationFailedError

    with pytest.raises(BrokerUnavailable, match="the broker at kafka:9092: ClusterAuthorizationFailedError"):
        async with TopicAdmin(Settings(broker="kafka:9092"), Refusing()).connected() as admin:
            await admin.create_missing()


async def test_a_cluster_that_cannot_create_topics_is_said_to(mock_cluster: str, tenant: str) -> None:
    """librdkafka's mock cluster has no controller; what exists there is used."""
    with pytest.raises(BrokerUnavailable, match="controller"):
        await ensure_topics(Settings(broker=mock_cluster, tenants=(tenant,)))


def test_compacted_topics_are_kept_for_ever_and_the_others_for_days() -> None:
    for spec in TOPICS:
        asked = new_topic(topic("acme", spec.name), spec, Settings(partitions=5, replication=3))
        assert (asked.name, asked.replication_factor) == (topic("acme", spec.name), 3)
        assert asked.num_partitions == (spec.partitions or 5)
        assert asked.topic_configs["min.insync.replicas"] == "2"
        if spec.compacted:
            assert asked.topic_configs["cleanup.policy"] == "compact"
            assert "retention.ms" not in asked.topic_configs
            assert int(asked.topic_configs["delete.retention.ms"]) >= 86_400_000
            assert asked.topic_configs["compression.type"] == "producer", "agents may lack the broker's own codec"
            assert int(asked.topic_configs["max.compaction.lag.ms"]) <= 86_400_000, "what is erased leaves the log"
        else:
            assert asked.topic_configs["cleanup.policy"] == "delete"
            assert int(asked.topic_configs["retention.ms"]) >= 7 * 86_400_000


@pytest.mark.tansu
async def test_what_the_embedded_broker_cannot_change_is_said(broker: EmbeddedBroker, tenant: str) -> None:
    settings = Settings(broker=broker.address, tenants=(tenant,), partitions=2)
    name = topic(tenant, "dead-letters")
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    await admin.create_topics(
        [NewTopic(name, 1, 1, topic_configs={"retention.ms": "1000", "cleanup.policy": "delete"})]
    )
    await admin.close()
    await ensure_topics(settings)
    async with TopicAdmin(settings).connected() as topics:
        found = await topics.compare(Allowed())
        assert {(each.topic, each.setting or each.kind, each.found, each.state) for each in found} == {
            (name, "partitions", "1", "open"),
            (name, "retention.ms", "1000", "open"),
            (name, "max.message.bytes", "", "unsupported"),
            (name, "min.insync.replicas", "", "unsupported"),
            (name, "message.timestamp.type", "", "unsupported"),
            (name, "unclean.leader.election.enable", "", "unsupported"),
        }
        done = await topics.apply(found)
    assert {each.state for each in done} == {"unsupported"} and len(done) == len(found)
    assert all(each.why for each in done)


class Kafka:
    """An admin client and a broker that can do all of it, as the protocol describes it."""

    client = ONE_SERVER

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, Any]] = {}
        self.answers_configs = True
        # State of the second broker: whether it is up, and the topics that it does not know yet.
        self.second_answers = True
        self.second_lacks: list[str] = []

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def list_topics(self) -> list[str]:
        return list(self.topics)

    async def describe_cluster(self) -> dict[str, Any]:
        return {"controller_id": 1, "brokers": [{"node_id": 1}, {"node_id": 2}]}

    async def _send_request_to_node(self, node: int, request: Any) -> Any:
        if node == 2 and not self.second_answers:
            raise KafkaConnectionError
        shown = [{"topic": name} for name in self.topics if node == 1 or name not in self.second_lacks]
        if node == 2 and self.second_lacks:
            self.second_lacks.pop()
        return SimpleNamespace(to_object=lambda: {"topics": shown})

    async def describe_topics(self) -> list[dict[str, Any]]:
        return [
            {"topic": name, "partitions": [{"replicas": list(range(each["replicas"]))}] * each["partitions"]}
            for name, each in self.topics.items()
        ]

    async def create_topics(self, new: list[NewTopic]) -> Any:
        for each in new:
            self.topics[each.name] = {
                "partitions": each.num_partitions,
                "replicas": each.replication_factor,
                "configs": dict(each.topic_configs),
            }
        return SimpleNamespace(topic_errors=[(each.name, 0, None) for each in new])

    async def describe_configs(self, resources: list[Any]) -> list[Any]:
        if not self.answers_configs:
            raise IncompatibleBrokerVersion("DescribeConfigs")
        answer = []
        for each in resources:
            own = self.topics[each.name]["configs"]
            entries = [(name, value, False, SET_ON_TOPIC, False, []) for name, value in own.items()]
            entries += [(name, value, False, 5, False, []) for name, value in DEFAULTS.items() if name not in own]
            answer.append((0, None, 2, each.name, entries))
        return [SimpleNamespace(resources=answer)]

    async def alter_configs(self, resources: list[Any]) -> list[Any]:
        for each in resources:
            self.topics[each.name]["configs"] = dict(each.configs)  # replaces all that was set
        return [SimpleNamespace(resources=[(0, None, 2, each.name) for each in resources])]

    async def create_partitions(self, wanted: dict[str, Any]) -> None:
        for name, each in wanted.items():
            assert each.total_count > self.topics[name]["partitions"]
            self.topics[name]["partitions"] = each.total_count


DEFAULTS = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "segment.ms": "604800000",
    "max.message.bytes": "1048588",
    "min.insync.replicas": "1",
    "min.cleanable.dirty.ratio": "0.5",
    "delete.retention.ms": "86400000",
    "max.compaction.lag.ms": "9223372036854775807",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "unclean.leader.election.enable": "false",
}
SETTINGS = Settings(tenants=("acme",), partitions=4)
EVENTS, PATTERNS, LETTERS = (topic("acme", name) for name in ("events", "patterns", "dead-letters"))


@pytest.fixture
async def kafka() -> Kafka:
    """A cluster with all topics of the tenant acme."""
    made = Kafka()
    async with TopicAdmin(SETTINGS, made).connected() as admin:
        await admin.create_missing()
    return made


async def compared(kafka: Kafka, settings: Settings = SETTINGS, **allowed: bool) -> list[Difference]:
    async with TopicAdmin(settings, kafka).connected() as admin:
        return await admin.compare(Allowed(**allowed))


async def applied(kafka: Kafka, settings: Settings = SETTINGS, **allowed: bool) -> dict[tuple[str, str], str]:
    async with TopicAdmin(settings, kafka).connected() as admin:
        done = await admin.apply(await admin.compare(Allowed(**allowed)))
    return {(each.topic, each.setting or each.kind): each.state for each in done}


@given(st.lists(st.integers(1, CHUNK_PARTITIONS + 5), max_size=40))
def test_topics_are_created_in_requests_that_a_broker_takes(partitions: list[int]) -> None:
    topics = [NewTopic(f"t{number}", each, 1) for number, each in enumerate(partitions)]
    requests = list(chunked(topics, CHUNK_PARTITIONS, attrgetter("num_partitions")))
    assert [each for request in requests for each in request] == topics
    for request in requests:
        assert len(request) == 1 or sum(each.num_partitions for each in request) <= CHUNK_PARTITIONS
    for request, following in pairwise(requests):
        assert sum(each.num_partitions for each in (*request, following[0])) > CHUNK_PARTITIONS


async def test_topics_are_there_when_every_broker_knows_them() -> None:
    """Until then a client that asks the other one finds no such topic."""
    kafka = Kafka()
    kafka.second_lacks = [EVENTS, PATTERNS]
    async with TopicAdmin(SETTINGS, kafka).connected() as admin:
        await admin.create_missing()
        assert not kafka.second_lacks, "waited for those that were created"
        kafka.second_lacks = [EVENTS]
        assert await admin.create_missing() == []
    assert not kafka.second_lacks, "and for those that somebody else has created"
    kafka.second_answers, kafka.second_lacks = False, [EVENTS]
    async with TopicAdmin(SETTINGS, kafka).connected() as admin:
        assert await admin.create_missing() == [], "but for no broker that is away"


async def test_a_cluster_in_sync_differs_in_nothing_also_where_a_default_is_what_is_stated(kafka: Kafka) -> None:
    del kafka.topics[EVENTS]["configs"]["max.message.bytes"]
    assert await compared(kafka) == [] and await applied(kafka) == {}


async def test_a_setting_is_changed_and_what_somebody_else_set_is_kept(kafka: Kafka) -> None:
    kafka.topics[PATTERNS]["configs"] |= {"segment.ms": "999", "preallocate": "true"}
    [difference] = await compared(kafka)
    assert (difference.setting, difference.found, difference.stated) == ("segment.ms", "999", "3600000")
    assert await applied(kafka) == {(PATTERNS, "segment.ms"): "done"}
    assert kafka.topics[PATTERNS]["configs"]["preallocate"] == "true"
    assert kafka.topics[PATTERNS]["configs"]["cleanup.policy"] == "compact"
    assert await compared(kafka) == []


@pytest.mark.parametrize(
    ("name", "setting", "there", "deletes"),
    [
        (EVENTS, "retention.ms", "7776000000", True),
        (EVENTS, "retention.ms", "-1", True),
        (EVENTS, "retention.ms", "1000", False),
        (EVENTS, "cleanup.policy", "compact", True),
        (PATTERNS, "cleanup.policy", "delete", True),
        (PATTERNS, "delete.retention.ms", "1", False),
    ],
)
async def test_what_may_delete_records_is_refused_unless_it_is_allowed(
    kafka: Kafka, name: str, setting: str, there: str, deletes: bool
) -> None:
    kafka.topics[name]["configs"][setting] = there
    assert await applied(kafka) == {(name, setting): "refused" if deletes else "done"}
    assert (kafka.topics[name]["configs"][setting] == there) is deletes
    assert await applied(kafka, delete=True) == ({(name, setting): "done"} if deletes else {})
    assert await compared(kafka) == []


async def test_partitions_grow_only_where_no_key_depends_on_them_and_never_shrink(kafka: Kafka) -> None:
    more = SETTINGS.with_(partitions=6)
    done = await applied(kafka, more)
    assert done.pop((LETTERS, "partitions")) == "done"
    assert set(done.values()) == {"refused"} and (EVENTS, "partitions") in done
    assert not any(name.endswith(("weights", "manifests", "pointers")) for name, _ in done), "they state their own"
    assert kafka.topics[LETTERS]["partitions"] == 6 and kafka.topics[EVENTS]["partitions"] == 4
    assert set((await applied(kafka, more, grow_keyed=True)).values()) == {"done"}
    assert kafka.topics[EVENTS]["partitions"] == 6
    fewer = await compared(kafka, SETTINGS.with_(partitions=2), grow_keyed=True)
    assert {(each.kind, each.state) for each in fewer} == {("partitions", "refused")}
    assert "taken away" in fewer[0].why


async def test_more_replicas_are_not_for_this_command_and_writes_do_not_wait_for_those_that_are_not_there(
    kafka: Kafka,
) -> None:
    done = await applied(kafka, SETTINGS.with_(replication=3))
    assert set(done.values()) == {"refused"}
    assert {what for _, what in done} == {"replication", "min.insync.replicas"}
    assert kafka.topics[EVENTS]["configs"]["min.insync.replicas"] == "1"


async def test_a_broker_that_does_not_say_its_settings_is_told_from_one_that_is_in_sync(kafka: Kafka) -> None:
    kafka.answers_configs = False
    differences = await compared(kafka)
    assert {(each.kind, each.state) for each in differences} == {("config", "unsupported")}
