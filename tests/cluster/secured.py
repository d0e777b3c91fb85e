"""A cluster with TLS, passwords, tokens and ACLs, and the settings of its users."""

import base64
import datetime
import ipaddress
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fleetlore.config import Settings
from tests.cluster.kafka_cluster import CLIENT, KafkaCluster

ROOT = "root"
MTLS = "MTLS"
LOGIN = "org.apache.kafka.common.security"
OF_WORKERS = "that-keys-of-principals-are-made-of"


def password_of(user: str) -> str:
    return f"{user}-secret"


def token_of_root() -> str:
    """An unsigned bearer token, which a test broker accepts."""
    now = int(time.time())
    parts = {"alg": "none"}, {"sub": ROOT, "iat": now, "exp": now + 600}
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


@dataclass(frozen=True)
class Certificates:
    """Files (PEM) of an authority, and of a broker and a client that it has signed for."""

    authority: Path
    broker: Path
    client: Path


def make_certificates(folder: Path) -> Certificates:
    folder.mkdir(parents=True, exist_ok=True)
    key, name = ec.generate_private_key(ec.SECP256R1()), _named("authority")
    authority = _certificate(name, name, key, key, x509.BasicConstraints(ca=True, path_length=None))
    files = Certificates(folder / "authority.pem", folder / "broker.pem", folder / "client.pem")
    files.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    for file, common_name in ((files.broker, "broker"), (files.client, ROOT)):
        own = ec.generate_private_key(ec.SECP256R1())
        signed = _certificate(_named(common_name), name, own, key, here)
        file.write_bytes(
            own.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + signed.public_bytes(serialization.Encoding.PEM)
        )
    return files


def _usage(*, signs: bool) -> x509.KeyUsage:
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    unused = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, **unused)


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _certificate(subject: x509.Name, issuer: x509.Name, key: Any, signer: Any, extension: Any) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        # Python asks for these since 3.13.
        .add_extension(_usage(signs=issuer == subject), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )


@dataclass(frozen=True)
class Secured:
    """Three brokers that deny what no ACL allows. Only `root` and clients of `cluster.inside` are exempt."""

    cluster: KafkaCluster
    files: Certificates

    def scram(self, user: str, tenant: str, **changes: Any) -> Settings:
        """Settings of a user with a password."""
        secured: dict[str, Any] = {
            "broker": self.cluster.address,
            "tenants": (tenant,),
            "replication": 3,
            "session_timeout_seconds": 6.0,
            "kafka_security_protocol": "SASL_SSL",
            "kafka_ssl_ca_location": str(self.files.authority),
            "kafka_sasl_mechanism": "SCRAM-SHA-256",
            "kafka_sasl_username": user,
            "kafka_sasl_password": password_of(user),
            "principal_key": OF_WORKERS,
        }
        return Settings(**{**secured, **changes})

    def by(self, way: str, tenant: str) -> Settings:
        """Settings of `root`, by each way in that a cluster may have."""
        if way == "mtls":
            return Settings(
                broker=self.cluster.address_of(MTLS),
                tenants=(tenant,),
                replication=3,
                session_timeout_seconds=6.0,
                kafka_security_protocol="SSL",
                kafka_ssl_ca_location=str(self.files.authority),
                kafka_ssl_certificate_location=str(self.files.client),
                principal_key=OF_WORKERS,
            )
        if way == "OAUTHBEARER":
            token = f"{token_of_root.__module__}:{token_of_root.__name__}"
            nothing = {"kafka_sasl_username": "", "kafka_sasl_password": ""}
            return self.scram(ROOT, tenant, kafka_sasl_mechanism=way, kafka_sasl_token=token, **nothing)
        return self.scram(ROOT, tenant, kafka_sasl_mechanism=way)


WAYS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "mtls")


def secured_cluster(folder: Path, users: tuple[str, ...]) -> Secured:
    """A cluster that has not started."""
    files = make_certificates(folder / "certificates")
    listener = f"listener.name.{CLIENT.lower()}"
    plain = " ".join(f'user_{user}="{password_of(user)}"' for user in (ROOT, *users))
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.authority),
        f"listener.name.{MTLS.lower()}.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{listener}.plain.sasl.jaas.config": f"{LOGIN}.plain.PlainLoginModule required {plain};",
        f"{listener}.scram-sha-256.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;",
        f"{listener}.scram-sha-512.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;",
        f"{listener}.oauthbearer.sasl.jaas.config": (
            f'{LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{ROOT}";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{ROOT};User:CN={ROOT}",
    }
    scram = tuple(
        option
        for user in (ROOT, *users)
        for kind in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for option in ("--add-scram", f"{kind}=[name={user},password={password_of(user)}]")
    )
    listeners = {CLIENT: "SASL_SSL", MTLS: "SSL"}
    cluster = KafkaCluster(
        folder / "kafka", brokers=3, properties=properties, listeners=listeners, format_options=scram
    )
    return Secured(cluster, files)
