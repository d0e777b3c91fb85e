"""Describe how a Kafka cluster, or the embedded stack of a folder, is reached."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import orjson

from fleetlore.errors import ConfigError, ModelUnavailable

__all__ = [
    "ADAPTERS", "LOCK_FILE", "SIGNING_KEY", "STACK_FILE", "TOKEN", "Bootstrap", "Cluster", "Relay", "StackFolder",
    "check_address", "named", "roles_of",
]  # fmt: skip

STACK_FILE = "stack.json"
LOCK_FILE = "stack.lock"
SIGNING_KEY = Path("keys", "adapter_ed25519")
ADAPTERS = Path("adapters")


@dataclass(frozen=True, slots=True)
class StackFolder:
    """The folder of a stack, which may be down now, and at other addresses later. Raises ConfigError: it is missing."""

    data: Path

    def __post_init__(self) -> None:
        if not self.data.is_dir():
            raise ConfigError(
                f"no stack runs on {self.data}, there is no such folder; "
                f"start one with `fleetlore up --data {self.data}`"
            )

    def __str__(self) -> str:
        return f"of the stack on {self.data}"

    def read(self) -> dict[str, Any]:
        """Return the running stack's `stack.json`: `broker`, `milvus`, `public_key` and more."""
        path = self.data / STACK_FILE
        try:
            stack: dict[str, Any] = orjson.loads(path.read_bytes())
            if any(not isinstance(stack[name], str) for name in ("broker", "milvus", "public_key")):
                raise TypeError("an address or a key is no text")
            if any(type(stack.get(name, 1)) is not int for name in ("partitions", "fetch_wait_ms")):
                raise TypeError("the number of partitions or the wait of a fetch is none")
            runs = "pid" not in stack or _runs(int(stack["pid"]), self.data / LOCK_FILE)
        except FileNotFoundError:
            raise ConfigError(
                f"no stack runs on {self.data}; start one with `fleetlore up --data {self.data}`"
            ) from None
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise ConfigError(f"{path} cannot be read: {error!r}") from None
        if not runs:
            raise ConfigError(
                f"the stack on {self.data} was ended without a stop; start it again with "
                f"`fleetlore up --data {self.data}`"
            )
        return stack


def roles_of(data: Path) -> dict[str, str]:
    return dict(orjson.loads((data / STACK_FILE).read_bytes()).get("metrics", {}))


def _runs(process: int, lock: Path) -> bool:
    try:
        import fcntl
    except ImportError:  # no stack runs on such a system
        return True
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        pass
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's process
        pass
    return True


_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOKEN = "OAUTHBEARER"
_VERIFICATIONS = ("https", "none")
_VARIABLE = "FLEETLORE_KAFKA_"


def check_address(address: str) -> None:
    """Raises ConfigError: a bootstrap server is not HOST:PORT."""
    for server in address.split(","):
        host, _, port = server.strip().rpartition(":")
        if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ConfigError(f"{server!r} is not HOST:PORT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Bootstrap servers, with the settings `FLEETLORE_KAFKA_*`. Its `str()` is the address; its `repr()` has no secret.

    Raises ConfigError: settings are missing, contradictory or unusable.
    """

    address: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    sasl_token: str = ""
    ssl_ca_location: str = ""
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""
    ssl_key_password: str = field(default="", repr=False)
    ssl_endpoint_identification: str = "https"

    def __post_init__(self) -> None:
        check_address(self.address)
        _one_of("SECURITY_PROTOCOL", self.security_protocol, _PROTOCOLS)
        _one_of("SSL_ENDPOINT_IDENTIFICATION", self.ssl_endpoint_identification, _VERIFICATIONS)
        credentials, token = ("sasl_username", "sasl_password"), ("sasl_token",)
        unused = f"{_VARIABLE}SECURITY_PROTOCOL={self.security_protocol} does not use it"
        if "SASL" in self.security_protocol:
            _one_of("SASL_MECHANISM", self.sasl_mechanism, (*_WITH_PASSWORD, TOKEN))
            wanted, other = (token, credentials) if self.sasl_mechanism == TOKEN else (credentials, token)
            self._check(wanted, True, f"{_VARIABLE}SASL_MECHANISM={self.sasl_mechanism} needs it")
            self._check(other, False, f"{_VARIABLE}SASL_MECHANISM={self.sasl_mechanism} does not use it")
        else:
            # An unused password would be an open door that looks closed.
            self._check(("sasl_mechanism", *credentials, *token), False, unused)
        if "SSL" not in self.security_protocol:
            self._check(("ssl_ca_location", "ssl_certificate_location", "ssl_key_location"), False, unused)
        elif self.ssl_key_location and not self.ssl_certificate_location:
            raise ConfigError(f"{_VARIABLE}SSL_KEY_LOCATION is set and {_VARIABLE}SSL_CERTIFICATE_LOCATION is not")

    def _check(self, names: tuple[str, ...], given: bool, why: str) -> None:
        for name in names:
            if bool(getattr(self, name)) is not given:
                raise ConfigError(f"{_VARIABLE}{name.upper()} is {'not set' if given else 'set'}, and {why}")

    def __str__(self) -> str:
        return self.address

    @classmethod
    def of(cls, bootstrap: Bootstrap) -> Cluster:
        if isinstance(bootstrap, StackFolder):
            return cls(address=bootstrap.read()["broker"])
        if isinstance(bootstrap, Relay):
            raise ConfigError(f"{bootstrap} is a relay: this takes the brokers themselves")
        return bootstrap if isinstance(bootstrap, Cluster) else cls(address=bootstrap)

    def ssl_context(self) -> ssl.SSLContext | None:
        # All addresses share one.
        return _ssl_context(replace(self, address="any:1")) if "SSL" in self.security_protocol else None

    def token_function(self) -> Callable[[], str]:
        module, _, name = self.sasl_token.partition(":")
        try:
            function: Callable[[], str] = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"{_VARIABLE}SASL_TOKEN={self.sasl_token} is no `module:function`: {error}") from None
        return function


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """Stands in place of the brokers."""

    address: str
    agent: str
    tenant: str
    token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        url = urlsplit(self.address)
        if not (self.socket or (url.scheme in ("http", "https") and url.hostname)):
            raise ConfigError(f"{self.address!r} is no address of a relay: give unix:PATH or http(s)://HOST:PORT")
        if importlib.util.find_spec("httpx2") is None:
            raise ModelUnavailable("a relay is asked by httpx2: pip install 'fleetlore[relay]' from your index")

    def __str__(self) -> str:
        return self.address

    @property
    def socket(self) -> str:
        scheme, _, path = self.address.partition(":")
        return path if scheme == "unix" else ""


# A folder is read at each connection.
Bootstrap: TypeAlias = str | Cluster | Relay | StackFolder


def named(bootstrap: Bootstrap) -> str:
    return f"{'relay' if isinstance(bootstrap, Relay) else 'broker'} {bootstrap}"


class _Session(ssl.SSLObject):
    """Ends without the broker's answer: asyncio waits up to 30 s, and leaks the socket if its loop ends before."""

    def unwrap(self) -> None:
        with contextlib.suppress(ssl.SSLWantReadError):
            super().unwrap()


@lru_cache(maxsize=8)
def _ssl_context(cluster: Cluster) -> ssl.SSLContext:
    ca, certificate = cluster.ssl_ca_location, cluster.ssl_certificate_location
    try:
        context = ssl.create_default_context(cafile=ca or None)
        context.sslobject_class = _Session
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{_VARIABLE}SSL_CA_LOCATION={ca} cannot be used: {error}") from None
    if cluster.ssl_endpoint_identification != "https":
        context.check_hostname = False
    if certificate:
        try:
            # With a function OpenSSL does not ask the terminal.
            context.load_cert_chain(certificate, cluster.ssl_key_location or None, lambda: cluster.ssl_key_password)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"{_VARIABLE}SSL_CERTIFICATE_LOCATION={certificate} cannot be used with its key: {error}"
            ) from None
    return context


def _one_of(name: str, value: str, values: tuple[str, ...]) -> None:
    if value not in values:
        raise ConfigError(f"{_VARIABLE}{name} must be one of {', '.join(values)}, not {value!r}")
