"""Settings: frozen, with units in their names, from the environment or from an embedded stack's folder.

Every field is one variable `FLEETLORE_<FIELD IN CAPITALS>`; `describe()` gives the table that the documentation shows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf
from pathlib import Path
from typing import Any

import orjson

from fleetlore.errors import ConfigError
from fleetlore.topics import DEFAULT_TENANT, check_tenant

STACK_FILE = "stack.json"


def _setting(default: Any, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything a role needs to know about the world around it."""

    broker: str = _setting("127.0.0.1:9092", "Kafka bootstrap servers, `host:port[,host:port]`")
    milvus: str = _setting("http://127.0.0.1:19530", "address of Milvus")
    milvus_token: str = _setting("", "token of Milvus or Zilliz, `user:password` or an API key")
    tenants: tuple[str, ...] = _setting((DEFAULT_TENANT,), "tenants that a worker or trainer serves, comma-separated")
    group: str = _setting("fleetlore", "consumer group of the workers; a replay uses another")
    partitions: int = _setting(4, "partitions of a topic that is created")
    replication: int = _setting(1, "replicas of a topic that is created; 3 in production")
    session_timeout_seconds: float = _setting(45.0, "after this long without a heartbeat a worker's partitions move")
    fetch_wait_ms: int = _setting(50, "how long the broker may hold a fetch open for more data")
    metrics_host: str = _setting("127.0.0.1", "address the metrics endpoint listens on; 0.0.0.0 in a container")
    metrics_port: int = _setting(0, "port of the metrics endpoint; 0 picks a free one")
    silent_seconds: float = _setting(3600.0, "event time without an event after which a session is closed as continued")
    drain_seconds: float = _setting(
        20.0,
        "after SIGTERM, how long a batch under way may take to end before it is left to the next worker; with the 5 s to commit "
        "and leave it stays below the 30 s after which Kubernetes kills",
    )
    breaker_ratio: float = _setting(
        0.5,
        "share of a topic's last records, above which a run of lost ones stops the worker; 0 to 1, and 1 switches that off",
    )
    breaker_run_records: int = _setting(
        100, "records in a row without one good event after which the worker stops instead of dead-lettering all"
    )
    adapters_dir: str = _setting("", "folder where the trainer keeps the versions it published")
    signing_key: str = _setting("", "file of the trainer's Ed25519 private key (PEM)")
    public_key: str = _setting("", "base64 of the Ed25519 public key whose adapters agents accept; several by comma")

    def __post_init__(self) -> None:
        if not self.broker:
            raise ConfigError("FLEETLORE_BROKER is empty")
        if not self.tenants:
            raise ConfigError("FLEETLORE_TENANTS names no tenant")
        for tenant in self.tenants:
            check_tenant(tenant)
        for name in (
            "partitions",
            "replication",
            "fetch_wait_ms",
            "session_timeout_seconds",
            "silent_seconds",
            "drain_seconds",
            "breaker_run_records",
        ):
            if not 0 < getattr(self, name) < inf:
                raise ConfigError(f"FLEETLORE_{name.upper()} must be above 0 and finite, not {getattr(self, name)}")

        if not 0 <= self.breaker_ratio <= 1:
            raise ConfigError(f"FLEETLORE_BREAKER_RATIO must be in 0..1, not {self.breaker_ratio}")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
        """Settings from `FLEETLORE_*`, then `overrides` that are not None.

        Raises:
            ConfigError: a value is malformed, or a variable is misspelt (an unknown `FLEETLORE_*` is refused, because a
                setting that is silently not applied is worse than an error).
        """
        environ = os.environ if environ is None else environ
        known = {f.name: f for f in fields(cls)}
        values: dict[str, Any] = {}
        for variable, text in environ.items():
            if not variable.startswith("FLEETLORE_"):
                continue
            name = variable.removeprefix("FLEETLORE_").lower()
            if name not in known:
                raise ConfigError(f"{variable} is not a setting; there are {', '.join(variables())}")
            values[name] = _parse(variable, text, known[name].default)
        values.update({name: value for name, value in overrides.items() if value is not None})
        return cls(**values)

    @classmethod
    def from_data_dir(cls, data: str | Path, **overrides: Any) -> Settings:
        """Settings of the embedded stack that runs (or ran) on a folder.

        Raises:
            ConfigError: the folder has no readable `stack.json`.
        """
        path = Path(data) / STACK_FILE
        try:
            stack = orjson.loads(path.read_bytes())
            addresses = {name: stack[name] for name in ("broker", "milvus", "public_key")}
        except FileNotFoundError:
            raise ConfigError(
                f"no stack runs on {Path(data)}: {path} is missing; start one with `fleetlore up --data {data}`"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path} cannot be read: {error!r}") from None
        return cls.from_env(**{**addresses, **{k: v for k, v in overrides.items() if v is not None}})

    def to_env(self) -> dict[str, str]:
        """The environment that gives these settings again in another process."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            f"FLEETLORE_{name.upper()}": ",".join(value) if isinstance(value, tuple) else str(value)
            for name, value in values.items()
        }

    def with_(self, **changes: Any) -> Settings:
        """A copy with some fields changed."""
        return replace(self, **changes)


def _parse(variable: str, text: str, default: Any) -> Any:
    try:
        if isinstance(default, tuple):
            return tuple(part.strip() for part in text.split(",") if part.strip())
        return type(default)(text)
    except ValueError:
        raise ConfigError(f"{variable}={text!r} is not a {type(default).__name__}") from None


def variables() -> list[str]:
    """Names of all environment variables, in the order of the table."""
    return [f"FLEETLORE_{f.name.upper()}" for f in fields(Settings)]


def describe() -> list[tuple[str, str, str]]:
    """Rows (variable, default, meaning)."""
    rows = []
    for f in fields(Settings):
        default = ",".join(f.default) if isinstance(f.default, tuple) else str(f.default)
        rows.append((f"FLEETLORE_{f.name.upper()}", default, f.metadata["doc"]))
    return rows
