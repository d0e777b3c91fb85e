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
from fleetlore.tenants import DEFAULT_TENANT, check_tenant

STACK_FILE = "stack.json"

# Event time after which an item that nothing backs any more counts for half.
HALF_LIFE_SECONDS = 30 * 86_400.0


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
    holdout_share: float = _setting(
        0.05,
        "share of recalled memory items that an agent is not shown, drawn at random for a session and an item, so that what "
        "an item is worth can be measured; 0 to 1, and 0 shows all",
    )
    item_half_life_seconds: float = _setting(
        HALF_LIFE_SECONDS,
        "event time after which a session counts for half where others contradict it, and an item that "
        "nothing backs any more ranks as if half as many did",
    )
    critic: str = _setting("", "file of a learned critic that judges where rewards, feedback and rules say nothing")
    llm_url: str = _setting(
        "", "base URL of an OpenAI-compatible endpoint that judges what nobody else could; empty asks none"
    )
    llm_model: str = _setting("", "model to ask there")
    llm_key: str = _setting("", "its API key")
    llm_timeout_seconds: float = _setting(30.0, "how long one attempt to ask it may take")
    llm_retries: int = _setting(4, "how often a question is tried again, with backoff, where it is overloaded or away")
    llm_concurrency: int = _setting(4, "questions that a worker asks at the same time")
    llm_tokens_per_minute: int = _setting(
        60_000, "tokens that a worker may use in a minute; what comes when they are used up is not judged by it"
    )
    llm_tokens_per_day: int = _setting(2_000_000, "the same for a day (UTC), restarts included")
    llm_audit_share: float = _setting(
        0.02,
        "share of the sessions with a reward or feedback that it is asked about too, so that it is known how often it errs",
    )
    llm_distill_share: float = _setting(
        0.0,
        "share of the surely judged sessions that it writes memory items from, beside those that are quoted; 0 to 1",
    )
    llm_answers: str = _setting(
        "~/.cache/fleetlore/llm.sqlite3",
        "file that keeps its answers, so that nothing is asked twice, and the tokens it used",
    )
    trainer_cpu_share: float = _setting(
        0.25,
        "share of a core that the trainer may take in the long run; where more sessions are judged than it can learn then, it "
        "learns a sample. 1 where it has a machine of its own",
    )
    privacy_noise: float = _setting(
        0.0,
        "differential privacy of adapters (extra `privacy`): noise of a step, in units of what one session may say in it; 0 switches "
        "that off, 0.7 is an epsilon of 7, and 1.5 one of 3",
    )
    privacy_clip_norm: float = _setting(0.3, "longest gradient of one session; what is longer is cut to this")
    privacy_delta: float = _setting(1e-5, "delta of the (epsilon, delta) in a manifest; well below 1 / sessions")
    base: str = _setting(
        "",
        "file of the base that adapters are made over (`fleetlore pretrain`), the same for trainer and agents; empty: the one that "
        "ships",
    )
    adapters_dir: str = _setting("", "folder where the trainer keeps the versions it published")
    canary_share: float = _setting(
        0.0,
        "share of the agents that a new adapter version is tried on before all get it; 0 switches that off, as a fleet of less "
        "than some 20 agents should",
    )
    signing_key: str = _setting("", "file of the trainer's Ed25519 private key (PEM)")
    weights_storage: str = _setting(
        "",
        "shared folder or object store, `file:///…` or `s3://…` (extra `s3`), for adapter weights above 512 KiB: the trainer writes "
        "there, and agents fetch what lies under it and nothing else; empty: such versions are neither published nor loaded",
    )
    public_key: str = _setting(
        "",
        "base64 of the Ed25519 public key whose adapters agents accept, and a trainer goes on from; several by comma",
    )

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
            "llm_timeout_seconds",
            "llm_concurrency",
            "item_half_life_seconds",
            "trainer_cpu_share",
        ):
            if not 0 < getattr(self, name) < inf:
                raise ConfigError(f"FLEETLORE_{name.upper()} must be above 0 and finite, not {getattr(self, name)}")

        for name in ("llm_retries", "llm_tokens_per_minute", "llm_tokens_per_day"):
            if getattr(self, name) < 0:
                raise ConfigError(f"FLEETLORE_{name.upper()} must not be below 0, not {getattr(self, name)}")
        if not 0 <= self.breaker_ratio <= 1:
            raise ConfigError(f"FLEETLORE_BREAKER_RATIO must be in 0..1, not {self.breaker_ratio}")
        if not 0 <= self.canary_share < 1:
            raise ConfigError(f"FLEETLORE_CANARY_SHARE must be in 0..1 and below 1, not {self.canary_share}")
        for name in ("llm_audit_share", "llm_distill_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"FLEETLORE_{name.upper()} must be in 0..1, not {getattr(self, name)}")
        if not 0 <= self.privacy_noise < inf:
            raise ConfigError(f"FLEETLORE_PRIVACY_NOISE must be 0 or above and finite, not {self.privacy_noise}")
        if not 0 < self.privacy_clip_norm < inf:
            raise ConfigError(f"FLEETLORE_PRIVACY_CLIP_NORM must be above 0 and finite, not {self.privacy_clip_norm}")
        if not 0 < self.privacy_delta < 1:
            raise ConfigError(f"FLEETLORE_PRIVACY_DELTA must be between 0 and 1, not {self.privacy_delta}")
        if not 0 <= self.holdout_share <= 1:
            raise ConfigError(f"FLEETLORE_HOLDOUT_SHARE must be in 0..1, not {self.holdout_share}")

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
