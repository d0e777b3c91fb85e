"""Read the settings from the environment, or from an embedded stack's folder.

A field is a variable `FLEETLORE_<FIELD>`, or for a secret a file that `FLEETLORE_<FIELD>_FILE` names.
"""

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from fleetlore.cluster import ADAPTERS, SIGNING_KEY, Cluster, StackFolder
from fleetlore.errors import ConfigError

__all__ = ["DEFAULT_TENANT", "HALF_LIFE_SECONDS", "Settings", "check_tenant", "embedded_environ", "join_keys"]

log = logging.getLogger(__name__)

_HOLDS = ("off", "sure", "always")
_REVIEWS = ("off", "risky", "all")
# Event time in which an item's backing halves.
HALF_LIFE_SECONDS = 30 * 86_400.0

_KAFKA = "kafka_"

DEFAULT_TENANT = "default"

# No dot, because `a.b` could read the topics of a tenant `a`.
_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")


def check_tenant(tenant: str) -> str:
    if not _TENANT.match(tenant):
        raise ConfigError(
            f"tenant {tenant!r} must be 1 to 63 of a-z, 0-9, '_' and '-', beginning with a letter or digit"
        )
    return tenant


def _setting(default: Any, doc: str, within: str = "", *, secret: bool = False) -> Any:
    """A field, its meaning, and the interval of its numbers, as in mathematics: `[0, 1)`."""
    return field(default=default, repr=not secret, metadata={"doc": doc, "within": within, "secret": secret})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    broker: str = _setting("127.0.0.1:9092", "Kafka bootstrap servers, `host:port[,host:port]`")
    relay: str = _setting(
        "", "address of a `fleetlore relay` in place of the brokers: `unix:PATH` or `http(s)://HOST:PORT`; empty: none"
    )
    relay_token: str = _setting("", "an agent's token there", secret=True)
    kafka_security_protocol: str = _setting("PLAINTEXT", "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`")
    kafka_sasl_mechanism: str = _setting("", "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`")
    kafka_sasl_username: str = _setting("", "user of PLAIN and SCRAM")
    kafka_sasl_password: str = _setting("", "its password", secret=True)
    kafka_sasl_token: str = _setting("", "`module:function` that returns a new token for OAUTHBEARER; it may block")
    kafka_ssl_ca_location: str = _setting(
        "", "file with the certificates that may sign a broker's (PEM); empty: the system's"
    )
    kafka_ssl_certificate_location: str = _setting("", "file with this client's certificate (PEM), for mTLS")
    kafka_ssl_key_location: str = _setting("", "file with its key (PEM); empty: it is in the certificate's file")
    kafka_ssl_key_password: str = _setting("", "password of that key", secret=True)
    kafka_ssl_endpoint_identification: str = _setting(
        "https", "`https`: a broker's certificate must be for its host name; `none`: any that is signed"
    )
    milvus: str = _setting("http://127.0.0.1:19530", "address of Milvus")
    milvus_token: str = _setting("", "token of Milvus or Zilliz, `user:password` or an API key", secret=True)
    tenants: tuple[str, ...] = _setting((DEFAULT_TENANT,), "tenants that a worker or trainer serves, comma-separated")
    group: str = _setting("fleetlore", "consumer group of the workers; a replay uses another")
    partitions: int = _setting(4, "partitions of a topic that is created", "(0, inf)")
    replication: int = _setting(1, "replicas of a topic that is created; 3 in production", "(0, inf)")
    session_timeout_seconds: float = _setting(
        45.0, "time without a heartbeat after which a worker's partitions move", "(0, inf)"
    )
    fetch_wait_ms: int = _setting(
        5000,
        "how long the broker may hold a fetch open without news; 50 on the embedded broker, which answers late",
        "(0, inf)",
    )
    metrics_host: str = _setting("127.0.0.1", "address the metrics endpoint listens on; 0.0.0.0 in a container")
    metrics_port: int = _setting(0, "port of the metrics endpoint; 0 picks a free one")
    silent_seconds: float = _setting(
        600.0, "event time without an event that closes a session as continued", "(0, inf)"
    )
    drain_seconds: float = _setting(
        20.0,
        "after SIGTERM, how long a running batch may take; with 5 s to commit it stays below the 30 s of Kubernetes",
        "(0, inf)",
    )
    breaker_run_records: int = _setting(
        100,
        "bad records in a row, of several senders and over at least two minutes, after which a topic stops",
        "(0, inf)",
    )
    holdout_share: float = _setting(
        0.05, "share of recalled memory items that a session is not shown, at random, to measure their worth", "[0, 1]"
    )
    hold: str = _setting(
        "sure",
        "calls that are held once and answered with what is known: `off` none, `sure` those that will fail by all "
        "that is known, `always` all that advice warns of",
    )
    mask_personal: tuple[str, ...] = _setting(
        (),
        "regions of an agent's end users, as `US,DE`, or `anywhere`: what names them by its form is masked in the "
        "agent (extra `personal`); empty: secrets alone",
    )
    replica_mb: float = _setting(
        50.0,
        "memory in MB, estimated, for an agent's lore: of its own tools first, then the best backed; `session.recall`"
        " finds the rest in the store",
        "(0, inf)",
    )
    llm_url: str = _setting(
        "", "base URL of an OpenAI-compatible endpoint that judges what no other judge can, and teaches; empty: none"
    )
    llm_model: str = _setting("", "model to ask there")
    llm_key: str = _setting("", "its API key", secret=True)
    llm_timeout_seconds: float = _setting(30.0, "how long one request may take", "(0, inf)")
    llm_retries: int = _setting(4, "retries with backoff where the endpoint is overloaded or away", "[0, inf)")
    llm_tokens_per_day: int = _setting(2_000_000, "tokens that a worker may use in a day (UTC)", "[0, inf)")
    llm_audit_share: float = _setting(
        0.02, "share of the sessions with a reward or feedback that the model judges too, to measure it", "[0, 1]"
    )
    llm_answers: str = _setting(
        "~/.cache/fleetlore/llm.sqlite3", "file that caches the model's answers and counts its tokens"
    )
    trainer_cpu_share: float = _setting(
        0.25,
        "share of a core for the trainer, which learns a sample of more sessions; 1 on a machine of its own",
        "(0, inf)",
    )
    adapters_dir: str = _setting("", "folder where the trainer keeps the versions it published")
    canary_share: float = _setting(
        0.0,
        "share of the principals whose language models try a new policy adapter first; 0, as with less than 40 "
        "principals: none",
        "[0, 1)",
    )
    signing_key: str = _setting("", "file of the trainer's Ed25519 private key (PEM)")
    weights_storage: str = _setting(
        "",
        "shared folder or object store, `file:///…` or `s3://…` (extra `s3`), for adapter weights above 512 KiB; "
        "empty: such versions are neither published nor loaded",
    )
    public_key: str = _setting(
        "",
        "Ed25519 public keys, in base64 and comma-separated, whose adapters are accepted; a key may revoke those "
        "after it; empty: an agent runs without the call model",
    )
    console_token: str = _setting(
        "",
        "who may open the console off loopback, comma-separated as `NAME:ROLE:TOKEN`, role `viewer` or `operator`; a "
        "token alone is a viewer's; empty: a new viewer's token at each start, printed",
        secret=True,
    )
    console_proxies: tuple[str, ...] = _setting(
        (),
        "networks of proxies that authenticate, comma-separated: the console believes their `X-Forwarded-User` alone",
    )
    console_operators: tuple[str, ...] = _setting(
        (), "users of these proxies who may act on the console, comma-separated; all others may only look"
    )
    principal_key: str = _setting(
        "",
        "of workers the secret, 32 characters or more, that principals' keys are made of: they take what one of those "
        "signed, and of each its own agents alone; of an agent or relay its key (`fleetlore topics principal`). "
        "`self-declared`: agents are who they say, which workers on a cluster with TLS or logins have to be told",
        secret=True,
    )
    quorum: int = _setting(
        2,
        "principals whose calls with a value must have worked before others are shown it; 1 where all agents have one"
        " owner",
        "[1, inf)",
    )
    review: tuple[str, ...] = _setting(
        ("off",),
        "new lessons that wait as *proposed* for a person's approval: `off` none, `risky` those whose calls change "
        "things outside, `all`; of single tenants as `risky,shop=all`",
    )
    closed_tools: tuple[str, ...] = _setting(
        (),
        "tools of systems that you run, comma-separated, `*` for any part of a name: what a quorum received from them"
        " may be shown, as from SQL; all else may hold texts of strangers",
    )
    state_dir: str = _setting(
        "~/.local/state/fleetlore",
        "folder where an agent's host keeps the newest adapter epochs, so that a restart cannot be led back to an "
        "older version; empty: not kept",
    )

    def __post_init__(self) -> None:
        if not self.broker:
            raise ConfigError("FLEETLORE_BROKER is empty")
        _ = self.cluster  # raises ConfigError
        if not self.tenants:
            raise ConfigError("FLEETLORE_TENANTS names no tenant")
        for tenant in self.tenants:
            check_tenant(tenant)
        if self.hold not in _HOLDS:
            raise ConfigError(f"FLEETLORE_HOLD must be one of {', '.join(_HOLDS)}, not {self.hold!r}")
        for review in self.review:
            if review.rpartition("=")[2] not in _REVIEWS:
                raise ConfigError(f"FLEETLORE_REVIEW must be of {', '.join(_REVIEWS)}, not {review!r}")
        for each in fields(self):
            value, within = getattr(self, each.name), each.metadata["within"]
            if within and not _is_within(value, within):
                raise ConfigError(f"FLEETLORE_{each.name.upper()} must be in {within}, not {value}")

    def review_of(self, tenant: str) -> str:
        known = dict(each.rpartition("=")[::2] for each in self.review)
        return known.get(tenant) or known.get("", "off")

    @property
    def cluster(self) -> Cluster:
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.name.startswith(_KAFKA)}
        return Cluster(address=self.broker, **{name.removeprefix(_KAFKA): value for name, value in settings.items()})

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] | None = None, *, unknown_refused: bool = True, **overrides: Any
    ) -> Self:
        """Return settings from `FLEETLORE_*`, then `overrides` that are not None. Raises ConfigError.

        `unknown_refused`: an agent only logs an unknown variable.
        """
        environ = os.environ if environ is None else environ
        known = {f.name: f for f in fields(cls)}
        values: dict[str, Any] = {}
        for variable, text in environ.items():
            if not variable.startswith("FLEETLORE_"):
                continue
            name = variable.removeprefix("FLEETLORE_").lower()
            of_file = name.removesuffix("_file")
            if name in known:
                values[name] = _parse(variable, text, known[name].default)
            elif of_file in known and known[of_file].metadata["secret"]:
                if text and f"FLEETLORE_{of_file.upper()}" in environ:
                    raise ConfigError(f"FLEETLORE_{of_file.upper()} and {variable} are both set")
                if text:
                    values[of_file] = _read_secret(variable, text)
            elif unknown_refused and variable not in _REMOVED:
                raise ConfigError(f"{variable} is not a setting; there are {', '.join(variables())}")
            else:
                _warn_once(variable)
        values.update({name: value for name, value in overrides.items() if value is not None})
        return cls(**values)

    @classmethod
    def from_data_dir(
        cls, data: str | Path | None, *, unknown_refused: bool = True, must_run: bool = True, **overrides: Any
    ) -> Self:
        """Return settings of the stack that runs on a folder, as `from_env` does without one.

        `must_run`: an agent waits for a stack that is down. Raises ConfigError.
        """
        if data is None:
            return cls.from_env(unknown_refused=unknown_refused, **overrides)
        stack: dict[str, Any] = {}
        folder = StackFolder(Path(data))
        try:
            stack = folder.read()
        except ConfigError:
            if must_run:
                raise
        found: dict[str, Any] = {name: stack[name] for name in ("broker", "milvus", "partitions") if name in stack}
        environ = embedded_environ(folder.data)
        found["public_key"] = join_keys(stack.get("public_key", ""), environ.get("FLEETLORE_PUBLIC_KEY", ""))
        if "fetch_wait_ms" in stack and "FLEETLORE_FETCH_WAIT_MS" not in os.environ:
            found["fetch_wait_ms"] = stack["fetch_wait_ms"]
        if "FLEETLORE_STATE_DIR" not in environ:  # stacks have different keys
            found["state_dir"] = str(folder.data / "agents")
        found |= {name: value for name, value in overrides.items() if value is not None}
        return cls.from_env(environ, unknown_refused=unknown_refused, **found)

    def to_env(self) -> dict[str, str]:
        """Return an environment that gives these settings."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        # An inherited file of a secret would count before the secret.
        files = {f"FLEETLORE_{f.name.upper()}_FILE": "" for f in fields(self) if f.metadata["secret"]}
        return files | {
            f"FLEETLORE_{name.upper()}": ",".join(value) if isinstance(value, tuple) else str(value)
            for name, value in values.items()
        }

    def with_(self, **changes: Any) -> Self:
        return replace(self, **changes)

    def with_key(self, data: Path | None) -> Self:
        """Sign with the key of the stack in `data`, if any."""
        if data is None:
            return self
        return self.with_(
            signing_key=self.signing_key or str(data / SIGNING_KEY),
            adapters_dir=self.adapters_dir or str(data / ADAPTERS),
        )


def _is_within(value: float, interval: str) -> bool:
    low, high = (float(bound) for bound in interval[1:-1].split(","))
    return low < value < high or (value == low and interval[0] == "[") or (value == high and interval[-1] == "]")


def _parse(variable: str, text: str, default: Any) -> Any:
    try:
        if isinstance(default, tuple):
            return tuple(part.strip() for part in text.split(",") if part.strip())
        return type(default)(text)
    except ValueError:
        raise ConfigError(f"{variable}={text!r} is not a {type(default).__name__}") from None


def join_keys(*texts: str) -> str:
    """Join comma-separated public keys, each once. A key outranks those after it, so the stack's comes first."""
    return ",".join(dict.fromkeys(key.strip() for text in texts for key in text.split(",") if key.strip()))


def embedded_environ(data: Path) -> dict[str, str]:
    """Return the environment of a stack: one owner, and a broker without TLS that answers a waiting fetch late."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(f"FLEETLORE_{_KAFKA.upper()}")}
    weights = f"file://{data.absolute()}/weights"
    return {
        "FLEETLORE_FETCH_WAIT_MS": "50", "FLEETLORE_QUORUM": "1", "FLEETLORE_WEIGHTS_STORAGE": weights, **others
    }  # fmt: skip


def _read_secret(variable: str, file: str) -> str:
    try:
        return Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{variable}={file} cannot be read: {error}") from None


# Settings of the last version, which only warn.
_REMOVED = (
    "FLEETLORE_BREAKER_RATIO", "FLEETLORE_ITEM_HALF_LIFE_SECONDS", "FLEETLORE_LLM_CONCURRENCY",
    "FLEETLORE_LLM_DISTILL_SHARE", "FLEETLORE_LLM_TOKENS_PER_MINUTE", "FLEETLORE_LONG_CALL_SECONDS",
    "FLEETLORE_LORA_DIR",
)  # fmt: skip


@lru_cache
def _warn_once(variable: str) -> None:
    log.warning("%s is not a setting of fleetlore and has no effect", variable)


def variables() -> list[str]:
    return [f"FLEETLORE_{f.name.upper()}" for f in fields(Settings)]


def describe() -> list[tuple[str, str, str]]:
    """Return rows (variable, default, meaning)."""
    rows = []
    for f in fields(Settings):
        default = ",".join(f.default) if isinstance(f.default, tuple) else str(f.default)
        doc = f.metadata["doc"]
        if f.metadata["secret"]:
            doc += f"; or `FLEETLORE_{f.name.upper()}_FILE`, a file that holds it"
        rows.append((f"FLEETLORE_{f.name.upper()}", default, doc))
    return rows
