"""Check a fleet's broker, topics, replicas, clock, Milvus, keys, lag and roles, without writing."""

import asyncio
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from aiokafka.errors import KafkaError

from fleetlore.adapters.signatures import load_signing_key, public_keys
from fleetlore.clock import Clock, SystemClock
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable, ConfigError, FleetloreError
from fleetlore.kafka.client import connected, make_admin
from fleetlore.kafka.read import end_offsets, observer, partitions_of, read_until
from fleetlore.recall.encoder import installed_encoder
from fleetlore.wire.principals import Principals
from fleetlore.wire.topics import TOPICS, topic
from sinks.collections import check_collections
from sinks.milvus import MilvusStore
from sinks.topics import Allowed, TopicAdmin
from streams.offline.operator_word import remaining
from streams.stages.pipeline import FLOW
from streams.stages.s3_judgments import OpinionsStage

__all__ = ["examine"]

_State = Literal["ok", "look", "broken"]
_CHECK_SECONDS = 20.0
_ROLE_SECONDS = 5.0
_TRIES = 4
_SKEW_SECONDS = 5.0
LAG_RECORDS = 10_000
# Values of `compression.type` that aiokafka alone does not read.
_NEED_PACKAGE = ("zstd", "snappy", "lz4")
_SELF_DECLARED = "agents are self-declared: one process can be three agents"
_QUORUM = (
    "; a value is shown once {} agents used it, and agents that share one name are one: alone they hear of each "
    "other's failures, and of nothing that worked"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """`look`: it works but needs attention. `todo`: what to do, or ""."""

    check: str
    state: _State
    said: str
    todo: str = ""


_Check = Callable[[Settings], Awaitable[Finding]]


async def examine(
    settings: Settings, clock: Clock | None = None, roles: Mapping[str, str] | None = None
) -> list[Finding]:
    """`roles`: URLs of the roles' endpoints by name."""
    found = [await _safely("broker", _broker, settings)]
    own_clock = partial(_clock, clock or SystemClock())
    checks: dict[str, _Check] = {
        "topics": _topics, "replicas": _replicas, "clock": own_clock, "lag": _lag, "log": _log,
    }  # fmt: skip
    for name, check in checks.items() if found[0].state != "broken" else ():
        found.append(await _safely(name, check, settings))
    found.append(await _safely("milvus", _milvus, settings))
    found.append(await _safely("keys", _keys, settings))
    found.append(_agents(settings))
    if roles:
        found.append(await _roles(roles))
    return found


async def _safely(name: str, check: _Check, settings: Settings) -> Finding:
    for left in reversed(range(_TRIES)):
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                return await check(settings)
        except TimeoutError:
            return Finding(name, "broken", f"no answer within {_CHECK_SECONDS:.0f} s", "see whether it is reachable")
        except ConfigError as error:
            return Finding(name, "broken", str(error), "correct what it names")
        except (FleetloreError, KafkaError, OSError) as error:
            # With one of three brokers down, every third request goes to it.
            if not left:
                return Finding(name, "broken", str(error) or repr(error), _cure(f"{error} {error!r}"))
    raise AssertionError("the last try returns")


def _cure(error: str) -> str:
    if "uthentication" in error or "Sasl" in error:
        return "compare FLEETLORE_KAFKA_SASL_* with the user that the cluster knows"
    if "ertificate" in error or "SSL" in error:
        return "compare FLEETLORE_KAFKA_SSL_* and the names in the brokers' certificates"
    if "uthoriz" in error:
        return "give this user the list that `fleetlore topics acls` prints"
    return "see whether it is up, and the address in FLEETLORE_BROKER or FLEETLORE_MILVUS"


async def _broker(settings: Settings) -> Finding:
    try:
        async with connected(make_admin(settings.cluster)) as admin:
            brokers = len((await admin.describe_cluster())["brokers"])
    except KafkaError as error:
        raise BrokerUnavailable(str(error)) from error
    how = " ".join(each for each in (settings.kafka_security_protocol, settings.kafka_sasl_mechanism) if each)
    said = f"{settings.broker}: {brokers} brokers, {how}"
    if brokers >= 3 and settings.replication == 1:
        return Finding("broker", "look", f"{said}; topics are created with one replica", "set FLEETLORE_REPLICATION=3")
    return Finding("broker", "ok", said)


async def _topics(settings: Settings) -> Finding:
    async with TopicAdmin(settings).connected() as admin:
        differences = await admin.compare(Allowed())
    stated = len(settings.tenants) * len(TOPICS)
    missing = sum(each.kind == "create" for each in differences)
    if missing:
        said = f"{missing} of {stated} are missing, or this user may not see them"
        return Finding("topics", "broken", said, "run `fleetlore topics apply`; compare `fleetlore topics acls`")
    packed = [each for each in differences if each.found in _NEED_PACKAGE]
    if packed:
        said = f"the broker compresses {len(packed)} topics by {packed[0].found}: an agent without `fleetlore[codecs]` "
        todo = "run `fleetlore topics apply`; what is compressed already needs the package in every agent"
        return Finding("topics", "look", f"{said}reads nothing of them", todo)
    wrong = Counter(each.setting or each.kind for each in differences if each.state != "unsupported")
    if wrong:
        said = ", ".join(f"{name} of {count} topics" for name, count in wrong.most_common(3))
        return Finding("topics", "look", f"not as stated: {said}", "see `fleetlore topics apply --dry-run`")
    return Finding("topics", "ok", f"{stated} as stated")


async def _replicas(settings: Settings) -> Finding:
    ours = {topic(tenant, spec.name) for tenant in settings.tenants for spec in TOPICS}
    async with connected(make_admin(settings.cluster)) as admin:
        described = [each for each in await admin.describe_topics() if each["topic"] in ours]
    partitions = [(each["topic"], partition) for each in described for partition in each["partitions"]]
    without_leader = [name for name, partition in partitions if partition["leader"] < 0]
    behind = [name for name, partition in partitions if len(partition["isr"]) < len(partition["replicas"])]
    if without_leader:
        said = f"{len(without_leader)} partitions have no leader, of {min(without_leader)} first"
        return Finding("replicas", "broken", said, "bring the brokers back that hold them")
    if behind:
        said = f"{len(behind)} partitions lack replicas in sync, of {min(behind)} first"
        return Finding("replicas", "look", said, "see which broker is away or too slow")
    return Finding("replicas", "ok", f"{len(partitions)} partitions in sync")


async def _clock(clock: Clock, settings: Settings) -> Finding:
    newest = 0.0
    async with observer(settings.cluster) as consumer:
        ends = await end_offsets(
            consumer, await partitions_of(consumer, *(topic(tenant, "events") for tenant in settings.tenants))
        )
        filled = {part: end for part, end in ends.items() if end}
        for part, end in filled.items():
            consumer.seek(part, end - 1)
        async for records in read_until(consumer, filled, stall_seconds=_CHECK_SECONDS):
            newest = max(newest, *(record.timestamp / 1000 for record in records))
    ahead = newest - clock.now()
    if ahead > _SKEW_SECONDS:
        return Finding("clock", "look", f"the broker is {ahead:.0f} s ahead of this host", "set both by NTP")
    return Finding("clock", "ok", "no event is from this host's future" if newest else "no event yet")


async def _lag(settings: Settings) -> Finding:
    # Judgments have a reader only with a language model.
    read = (*FLOW, OpinionsStage.reads) if settings.llm_url else FLOW
    async with observer(settings.cluster, settings.group) as consumer:
        names = [topic(tenant, each) for tenant in settings.tenants for each in read]
        lags = {name: await remaining(consumer, name) for name in names}
    name, records = max(lags.items(), key=lambda each: each[1])
    said = f"{sum(lags.values())} records are not committed by the group {settings.group!r}"
    if records > LAG_RECORDS:
        return Finding("lag", "look", f"{said}, {records} of {name}", "start workers, or see why theirs is not ready")
    return Finding("lag", "ok", said)


async def _log(settings: Settings) -> Finding:
    async with observer(settings.cluster) as consumer:
        partitions = await partitions_of(consumer, *(topic(tenant, "events") for tenant in settings.tenants))
        expired = sum((await consumer.beginning_offsets(partitions)).values())
    if not expired:
        return Finding("log", "ok", "holds every event: `fleetlore backfill` can make all lore again")
    said = f"{expired:,} records of events have expired: lore from them is in Milvus and in exports alone"
    return Finding("log", "ok", f"{said}; `fleetlore export lore` writes one")


async def _milvus(settings: Settings) -> Finding:
    try:
        async with MilvusStore.from_settings(settings) as store:
            said = await store.on_client(lambda client: check_collections(client, installed_encoder()))
    except ConfigError as error:
        return Finding("milvus", "broken", str(error), "do as it says; a worker creates what is missing")
    return Finding("milvus", "ok", said)


async def _keys(settings: Settings) -> Finding:
    if not settings.public_key:
        todo = "set FLEETLORE_PUBLIC_KEY for agents and trainer"
        return Finding("keys", "look", "no public key: agents run without the call model", todo)
    trusted = public_keys(settings.public_key)
    if settings.signing_key and (own := load_signing_key(settings.signing_key).key_id) not in trusted:
        todo = "add its public half to FLEETLORE_PUBLIC_KEY"
        return Finding("keys", "broken", f"the trainer signs with {own}, which is not a trusted key", todo)
    return Finding("keys", "ok", f"{len(trusted)} trusted")


def _agents(settings: Settings) -> Finding:
    quorum = _QUORUM.format(settings.quorum) if settings.quorum > 1 else ""
    if Principals.of(settings.principal_key) is not None:
        said = "identified by their signing keys: names with one prefix count as one agent"
        return Finding("agents", "ok", said + quorum)
    secured = settings.kafka_security_protocol != "PLAINTEXT"
    todo = "set FLEETLORE_PRINCIPAL_KEY of workers and agents: see `fleetlore topics principal`" if secured else ""
    return Finding("agents", "look" if secured else "ok", _SELF_DECLARED + quorum, todo)


async def _roles(roles: Mapping[str, str]) -> Finding:
    asked = [asyncio.to_thread(_health_of, name, url) for name, url in sorted(roles.items())]
    wrong = [each for each in await asyncio.gather(*asked) if each is not None]
    if not wrong:
        return Finding("roles", "ok", f"{len(roles)} ready: {', '.join(sorted(roles))}")
    state: _State = "broken" if any(state == "broken" for state, _ in wrong) else "look"
    return Finding("roles", state, "; ".join(said for _, said in wrong), "see the role's log in the folder's `logs`")


def _health_of(name: str, url: str) -> tuple[_State, str] | None:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=_ROLE_SECONDS):
            return None
    except urllib.error.HTTPError as error:
        with error:
            return "look", f"{name} is not ready: {error.read().decode('utf-8', 'replace').strip()}"
    except OSError:
        return "broken", f"{name} does not answer at {url}"
