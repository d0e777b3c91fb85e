"""The doctor on a real cluster: a broker away, a wrong password, a user without rights, one replica of three."""

from fleetlore.config import Settings
from sinks.topics import ensure_topics
from streams.offline.doctor import Finding, examine
from tests.cluster.kafka_cluster import KafkaCluster
from tests.cluster.secured import Secured


async def found(settings: Settings) -> dict[str, Finding]:
    return {each.check: each for each in await examine(settings)}


async def test_a_cluster_with_a_broker_away(three: KafkaCluster, milvus: str, tenant: str) -> None:
    settings = Settings(broker=three.address, milvus=milvus, tenants=(tenant,), replication=3, group=tenant)
    await ensure_topics(settings)
    well = await found(settings)
    assert {well[each].state for each in ("broker", "topics", "replicas", "clock", "lag")} == {"ok"}, well
    one = (await found(settings.with_(replication=1)))["broker"]
    assert one.state == "look" and "FLEETLORE_REPLICATION" in one.todo
    victim = three.brokers[-1]
    victim.kill()
    try:
        now = await found(settings)
        while "replicas" not in now or now["replicas"].state == "ok":  # until the controller has missed it
            now = await found(settings)
        assert now["replicas"].state in ("look", "broken")
    finally:
        victim.launch()
        victim.await_brokers(3)


async def test_who_is_not_let_in_or_may_not_look_hears_what_to_do(secured: Secured, milvus: str, tenant: str) -> None:
    await ensure_topics(secured.by("SCRAM-SHA-256", tenant))
    wrong = (await found(secured.scram("root", tenant, milvus=milvus, kafka_sasl_password="no")))["broker"]
    assert wrong.state == "broken" and "FLEETLORE_KAFKA_SASL_" in wrong.todo and wrong.said != "no"
    stranger = await found(secured.scram("nobody", tenant, milvus=milvus))
    assert stranger["broker"].state == "ok"
    assert stranger["topics"].state == "broken" and "topics acls" in stranger["topics"].todo
    untrusted = (await found(secured.scram("root", tenant, milvus=milvus, kafka_ssl_ca_location="")))["broker"]
    assert untrusted.state == "broken" and "FLEETLORE_KAFKA_SSL_" in untrusted.todo
