"""List the present versions, channels and agents, as unverified dicts for display."""

import hashlib
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any, Self

import orjson

from fleetlore.cluster import Bootstrap
from fleetlore.kafka.read import read_to_end
from fleetlore.wire.adapter_manifest import CANARY, CHANNEL, REVOKED
from fleetlore.wire.topics import topic


@dataclass(frozen=True, slots=True)
class Listed:
    """A version for display. Any release may have published it, so no field is certain.

    Attributes:
        channels: channels that run it, a canary with its share; and `revoked`.
        pinned: channels that the trainer leaves alone.
        running, refused: agents that loaded it, and agents that refused it, with reasons.
        lineage: the version and its ancestors. A deleted ancestor has only its name.
    """

    manifest: dict[str, Any]
    adapter: str
    version: str
    ordinal: int
    created: float
    channels: tuple[str, ...]
    pinned: frozenset[str]
    running: tuple[str, ...]
    refused: tuple[str, ...]
    metrics: tuple[tuple[str, float], ...]
    lineage: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AdapterListing:
    """manifests: oldest first, with the key that signed each. pointers: the valid record of each channel. acks: the
    newest of each agent and adapter. revocations: of versions and keys."""

    manifests: tuple[dict[str, Any], ...]
    pointers: tuple[dict[str, Any], ...]
    acks: tuple[dict[str, Any], ...]
    revocations: tuple[dict[str, Any], ...] = ()

    def of(self, adapter: str) -> Self:
        manifests = tuple(manifest for manifest in self.manifests if manifest.get("name") == adapter)
        pointers = tuple(pointer for pointer in self.pointers if pointer.get("name") == adapter)
        acks = tuple(ack for ack in self.acks if ack.get("adapter") == adapter)
        return replace(self, manifests=manifests, pointers=pointers, acks=acks)

    def versions(self) -> list[Listed]:
        acks: defaultdict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for ack in self.acks:
            running, refused = acks[str(ack.get("version"))]
            if ack.get("result") == "applied":
                running.append(str(ack.get("agent")))
            else:
                refused.append(f"{ack.get('agent')} ({ack.get('result')})")
        revoked = {str(each.get("what")) for each in self.revocations}
        parents = {str(each.get("version", "")): each.get("parent") for each in self.manifests}
        found = []
        for manifest in self.manifests:
            version, metrics = str(manifest.get("version", "")), manifest.get("metrics")
            pointers = [each for each in self.pointers if each.get("version") == version]
            lineage = [version]
            while (parent := parents.get(lineage[-1])) is not None and str(parent) not in lineage:
                lineage.append(str(parent))
            figures = metrics.items() if isinstance(metrics, dict) else ()
            found.append(
                Listed(
                    manifest,
                    str(manifest.get("name", "")),
                    version,
                    int(_number(manifest.get("ordinal"))),
                    float(_number(manifest.get("created"))),
                    (*sorted(map(_channel, pointers)), *["revoked"] * (version in revoked)),
                    frozenset(_channel(each) for each in pointers if each.get("pinned") is True),
                    tuple(sorted(acks[version][0])),
                    tuple(sorted(acks[version][1])),
                    tuple(sorted((str(name), float(n)) for name, n in figures if isinstance(n, int | float))),
                    tuple(lineage),
                )
            )
        return found


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0


def _channel(pointer: dict[str, Any]) -> str:
    share, name = pointer.get("share"), str(pointer.get("channel"))
    return f"{name} {share:.0%}" if name == "canary" and isinstance(share, int | float) else name


async def read_adapters(bootstrap: Bootstrap, tenant: str, timeout_seconds: float = 10.0) -> AdapterListing:
    """Read the tenant's adapters and acks to their end. Missing topics are empty. Raises BrokerUnavailable on
    time-out."""
    manifests: dict[bytes, dict[str, Any]] = {}
    newest: dict[tuple[str, str], dict[str, Any]] = {}  # by adapter and channel
    revocations: dict[bytes, dict[str, Any]] = {}
    acks: dict[bytes, dict[str, Any]] = {}
    of_acks = topic(tenant, "adapters.acks")
    for record in await read_to_end(bootstrap, [topic(tenant, "adapters"), of_acks], timeout_seconds):
        key, document = record.key or b"", _document((record.value or b"").partition(b"\n")[0])
        manifest = _document(document.pop("manifest", {}))
        if record.topic == of_acks:
            acks |= {key: document} if document else {}
        elif record.value is None:
            manifests.pop(key, None)
        elif key.startswith(REVOKED.encode()) and document:
            revocations[key] = document
        elif manifest:
            adapter, version = str(manifest.get("name")), manifest.get("version")
            manifests[key] = manifest | {"key_id": document.get("key_id")}
            # Readers follow the first of two records with one epoch.
            channel = adapter, str(document.get("channel"))
            if document.get("epoch", 0) > newest.get(channel, {}).get("epoch", 0):
                newest[channel] = document | {"name": adapter, "version": version}
    stable = {adapter: each["epoch"] for (adapter, channel), each in newest.items() if channel == CHANNEL}
    ended = [each for each in newest if each[1] == CANARY and newest[each]["epoch"] <= stable.get(each[0], 0)]
    for each in ended:
        del newest[each]
    ordered = sorted(manifests.values(), key=lambda each: (each.get("created", 0), _number(each.get("ordinal"))))
    return AdapterListing(tuple(ordered), tuple(newest.values()), tuple(acks.values()), tuple(revocations.values()))


def _document(value: Any) -> dict[str, Any]:
    try:
        document = orjson.loads(value) if isinstance(value, bytes) else value
    except orjson.JSONDecodeError:
        return {}
    is_listed = isinstance(document, dict) and all(
        isinstance(document.get(name, 0), int | float) for name in ("epoch", "created")
    )
    return dict(document) if is_listed else {}


async def read_weights(bootstrap: Bootstrap, tenant: str, adapter: str, timeout_seconds: float = 10.0) -> bytes | None:
    """Return the weights on the channel `stable`, or None if there are none or they are in a blob store."""
    listing = (await read_adapters(bootstrap, tenant, timeout_seconds)).of(adapter)
    version = next((str(each.get("version")) for each in listing.pointers if each.get("channel") == "stable"), "")
    if not version or any(each.get("what") == version for each in listing.revocations):
        return None
    key = f"{adapter}/{version}".encode()
    for record in reversed(await read_to_end(bootstrap, [topic(tenant, "adapters")], timeout_seconds)):
        weights = (record.value or b"").partition(b"\n")[2]
        if record.key == key and hashlib.sha256(weights).hexdigest() == version:
            return weights
    return None
