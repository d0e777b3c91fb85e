"""How a cluster is reached: what contradicts itself is refused by name, and no secret is shown."""

from pathlib import Path
from typing import Any

import pytest

from fleetlore.cluster import Cluster
from fleetlore.errors import ConfigError
from tests.rows import for_each

SCRAM = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "u", "sasl_password": "p"}
TOKEN = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_token": "json:dumps"}


@for_each(
    "settings, named",
    ({"security_protocol": "TLS"}, "SECURITY_PROTOCOL must be one of PLAINTEXT, SSL"),
    ({"sasl_username": "u"}, "SASL_USERNAME is set, and .*SECURITY_PROTOCOL=PLAINTEXT does not use it"),
    ({"security_protocol": "SSL", "sasl_mechanism": "PLAIN"}, "SASL_MECHANISM is set"),
    ({"security_protocol": "SASL_PLAINTEXT"}, "SASL_MECHANISM must be one of"),
    ({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}, "SASL_MECHANISM must be one of"),
    (SCRAM | {"sasl_password": ""}, "SASL_PASSWORD is not set"),
    (SCRAM | {"sasl_token": "a:b"}, "SASL_TOKEN is set"),
    (TOKEN | {"sasl_token": ""}, "SASL_TOKEN is not set"),
    (TOKEN | {"sasl_password": "p"}, "SASL_PASSWORD is set"),
    ({"ssl_ca_location": "/ca"}, "SSL_CA_LOCATION is set"),
    ({"security_protocol": "SSL", "ssl_key_location": "/k"}, "SSL_CERTIFICATE_LOCATION is not"),
    ({"ssl_endpoint_identification": "no"}, "SSL_ENDPOINT_IDENTIFICATION must be one of https, none"),
)
def test_what_contradicts_itself_is_refused_by_name(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Cluster(address="a:1", **settings)


def test_no_secret_is_in_what_is_printed() -> None:
    cluster = Cluster(address="a:1", **SCRAM | {"sasl_password": "hidden-1", "ssl_key_password": "hidden-2"})
    assert str(cluster) == "a:1"
    assert "hidden" not in repr(cluster) + str(cluster)


def test_an_address_alone_is_a_cluster_without_secrets() -> None:
    assert Cluster.of("a:1,b:2") == Cluster(address="a:1,b:2")
    assert Cluster.of("a:1").ssl_context() is None
    secured = Cluster(address="a:1", **SCRAM)
    assert Cluster.of(secured) is secured


@pytest.mark.parametrize(
    ("file", "named"), [("ssl_ca_location", "SSL_CA_LOCATION"), ("ssl_certificate_location", "SSL_CERTIFICATE")]
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, file: str, named: str) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for path in (broken, tmp_path / "missing.pem"):
        with pytest.raises(ConfigError, match=f"{named}.*{path.name}"):
            Cluster(address="a:1", security_protocol="SSL", **{file: str(path)}).ssl_context()


def test_agents_of_a_process_share_what_verifies_a_broker() -> None:
    one, other = (Cluster(address=address, security_protocol="SSL").ssl_context() for address in ("a:1", "b:1"))
    assert one is other is not None and one.check_hostname


@for_each("name", "nothing", "no_such_module:f", "json:no_such_function", ":")
def test_a_function_for_tokens_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match="SASL_TOKEN"):
        Cluster(address="a:1", **TOKEN | {"sasl_token": name}).token_function()
