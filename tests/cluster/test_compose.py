"""The settings of the Compose file's broker: Kafka knows each, and starts with them."""

from pathlib import Path

import yaml
from confluent_kafka.admin import AdminClient, ConfigResource

from fleetlore.config import Settings
from fleetlore.wire.topics import TOPICS
from sinks.topics import ensure_topics
from streams.embedded.broker import free_port
from tests.cluster.kafka_cluster import CLIENT, INSIDE, KafkaBroker

ROOT = Path(__file__).parents[2]


def properties(environment: dict[str, str]) -> dict[str, str]:
    """Kafka's image turns its variables into properties: `KAFKA_A_B` is the property `a.b`."""
    return {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith("KAFKA_")
    }


async def test_the_broker_starts_with_the_settings_of_the_compose_file(kafka: None, tmp_path: Path) -> None:
    service = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["kafka"]
    stated = properties(service["environment"])
    ports = {"9092": free_port(), "9093": free_port(), "9094": free_port()}
    here = {}
    for name, value in stated.items():
        # Another host and other ports, since a test has this one; the rest as it is.
        for port, mine in ports.items():
            value = value.replace(f"kafka:{port}", f"127.0.0.1:{mine}").replace(f":{port}", f":{mine}")
        here[name] = value.replace("://:", "://127.0.0.1:")
    here["log.dirs"] = str(tmp_path / "data")
    broker = KafkaBroker(tmp_path, 1, {INSIDE: ports["9092"], CLIENT: ports["9094"]}, here)
    broker.format()
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        (asked,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
        known = {name: entry.value for name, entry in asked.result(30).items()}
        assert {name: known.get(name) for name in here} == here
        assert len(await ensure_topics(Settings(broker=broker.address))) == len(TOPICS)
    finally:
        broker.kill()
