"""Creating the topics that are missing."""

from __future__ import annotations

import logging

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable
from fleetlore.topics import DAY_SECONDS, TOPICS, TopicSpec, topic

log = logging.getLogger(__name__)


def new_topic(tenant: str, spec: TopicSpec, settings: Settings) -> NewTopic:
    """The topic as it is asked of the broker."""
    retention = {} if spec.retention_days is None else {"retention.ms": str(spec.retention_days * DAY_SECONDS * 1000)}
    return NewTopic(
        name=topic(tenant, spec.name),
        num_partitions=settings.partitions,
        replication_factor=settings.replication,
        topic_configs={"cleanup.policy": "compact" if spec.compacted else "delete", **retention},
    )


async def ensure_topics(settings: Settings) -> list[str]:
    """Create the topics of all tenants that do not exist yet; return their names.

    A topic that exists is left as it is, whatever its settings: changing them is the operator's decision.

    Raises:
        BrokerUnavailable: nobody answers there, or the broker refuses.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.broker)
    try:
        await admin.start()
        existing = set(await admin.list_topics())
        wanted = [new_topic(tenant, spec, settings) for tenant in settings.tenants for spec in TOPICS]
        missing = [each for each in wanted if each.name not in existing]
        if missing:
            cluster = await admin.describe_cluster()
            if cluster["controller_id"] not in {broker["node_id"] for broker in cluster["brokers"]}:
                # aiokafka would fail with an AttributeError; and a topic that a broker makes by itself is not compacted.
                raise BrokerUnavailable(f"the cluster at {settings.broker} has no controller that could create topics")
            response = await admin.create_topics(missing)
            for name, code, *_ in response.topic_errors:
                # Another worker may have been quicker.
                if code and for_code(code) is not TopicAlreadyExistsError:
                    raise BrokerUnavailable(
                        f"the broker at {settings.broker} did not create {name}: {for_code(code).__name__}"
                    )
        return [each.name for each in missing]
    except KafkaError as error:
        raise BrokerUnavailable(f"no Kafka broker at {settings.broker}: {error}") from error
    finally:
        await admin.close()
