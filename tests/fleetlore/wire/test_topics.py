"""Topics: names that keep tenants apart, and partitions that agree with every other Kafka client."""

import pytest
from aiokafka.partitioner import murmur2
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.config import check_tenant
from fleetlore.errors import ConfigError
from fleetlore.wire.topics import NAMES, partition_for, tenant_of, topic
from tests.rows import for_each


@given(st.text(max_size=40), st.integers(1, 64))
def test_a_key_goes_where_aiokafka_would_send_it(key: str, partitions: int) -> None:
    encoded = key.encode("utf-8", "surrogatepass") if key.isascii() else key.encode("utf-8", "ignore")
    text = encoded.decode()
    assert partition_for(text, partitions) == (murmur2(encoded) & 0x7FFFFFFF) % partitions


@for_each("tenant", "default", "a", "0", "team-7", "team_7", "x" * 63)
def test_good_tenants(tenant: str) -> None:
    assert check_tenant(tenant) == tenant
    for name in NAMES:  # some have a dot
        assert topic(tenant, name) == f"fleetlore.{tenant}.{name}" and tenant_of(topic(tenant, name)) == tenant


@for_each("tenant", "", "a.b", "a/b", "A", "-a", "_a", "a b", "a\n", "ä", "x" * 64, "a\x00", "a:b", "a,b", '"', "*")
def test_a_tenant_with_a_separator_or_any_other_character_is_refused(tenant: str) -> None:
    with pytest.raises(ConfigError):
        check_tenant(tenant)
    with pytest.raises(ConfigError):
        topic(tenant, "events")


@for_each("name", "events", "fleetlore.events", "fleetlore.a.b.events", "fleetlore.a.nothing", "other.a.events")
def test_names_that_are_not_ours_have_no_tenant(name: str) -> None:
    with pytest.raises(ConfigError):
        tenant_of(name)


def test_an_unknown_topic_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="dead-letters"):
        topic("default", "event")
