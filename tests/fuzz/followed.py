"""Records that agents, trainers and operators' tools follow: lore, decisions, erasures, adapters, dead letters."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from math import inf
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import orjson
from aiokafka import ConsumerRecord, TopicPartition

from fleetlore.adapters.view import AdapterView
from fleetlore.errors import AdapterRefused
from fleetlore.recall.replica import LoreReplica
from fleetlore.testing import FakeClock
from fleetlore.wire.adapter_manifest import ADAPTERS, REVOKED, Revocation
from fleetlore.wire.dead_letter import read_dead_letter
from fleetlore.wire.lore import Decision
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Judgment, Trajectory
from streams.stage.base import readable
from streams.stage.operators import Distrusted, Erased, Erasure
from tests.build import letter, memory_item, met, trajectory, verdict
from tests.fuzz.boundary import Boundary
from tests.fuzz.odd import any_bytes, chance, json_of, mutated, text
from tests.fuzz.worker import Worker, fleet_of
from tests.random_adapters import KEY, OTHER, TRUSTED, record_of, version_of

_TENANT = "acme"
_TRAJECTORY = trajectory(tenant=_TENANT, task="t", ending="success", events=2)


class Read(NamedTuple):
    """One record that was fetched."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@cache
def _samples() -> dict[str, list[tuple[bytes, Any]]]:
    """Keys and valid values by topic; documents to be signed are objects, with the weights that follow them."""
    found: dict[str, list[tuple[bytes, Any]]] = {
        "patterns": [(b"p", met("search", {"index": "x"}, "E", "no").to_json())],
        "items": [(b"i", memory_item("better", tool="search", was=("a=1",), now=("a=2",)).to_json())],
        "decisions": [
            (b"item/i", Decision(kind=kind, id="i", on=True, by="me", why="no", time=1.0).to_json())
            for kind in ("item", "agent")
        ],
        "erasures": [
            (b"session/1", Erasure(time=1.0, sessions=(1, 2)).to_json()),
            (b"agent/1", Erasure(time=1.0, agent=1, before=2.0).to_json()),
        ],
        "trajectories": [(b"s", _TRAJECTORY.to_json())],
        "judgments": [(b"s", Judgment(trajectory=_TRAJECTORY, verdict=verdict("success", 0.9, "rules")).to_json())],
        "dead-letters": [(b"s", b"{}")],
    }
    for kind in ADAPTERS:
        for options in ({}, {"uri": "file:///x/y.safetensors"}):
            key, value = record_of(KEY, *version_of(kind, 1, _TENANT), 1, **options)
            document, _, weights = value.partition(b"\n")
            found.setdefault("adapters", []).append((key, (orjson.loads(document), weights)))
    revocation = Revocation(_TENANT, "version", "a" * 64, "no", 1.0)
    found["adapters"].append((f"{REVOKED}version/a".encode(), (orjson.loads(KEY.sign(revocation)), b"")))
    return found


def _signed(random: Random, document: dict[str, Any]) -> bytes:
    """A document that is odd and signed all the same, or one whose signature is odd."""
    odd = json_of(random, document)
    if chance(random, 2):
        return odd
    try:
        body = orjson.loads(odd)
        return (KEY if chance(random, 2) else OTHER).sign({k: v for k, v in body.items() if k != "signature"})
    except (ValueError, TypeError, AttributeError):
        return odd


def make(random: Random) -> Read:
    name = random.choice(list(_samples()))
    key, valid = random.choice(_samples()[name])
    if name == "adapters":
        document, weights = valid
        value = _signed(random, document) if chance(random, 2) else orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
        value += b"\n" + (mutated(random, weights) if chance(random, 2) else weights)
    else:
        value = any_bytes(random, lambda random: json_of(random, orjson.loads(valid)))
    if chance(random, 4):
        key = random.choice((b"", mutated(random, key), text(random).encode("utf-8", "surrogatepass")))
    headers = list[tuple[str, bytes]]()
    if name == "dead-letters":
        made = letter(key=key, value=value, headers={})
        headers = [(mark, mutated(random, content) if chance(random, 3) else content) for mark, content in made.headers]
    return Read(name, None if chance(random, 50) else key, None if chance(random, 50) else value, tuple(headers))


def size(read: Read) -> int:
    return len(read.value or b"") + len(read.key or b"")


class _Follower:
    """Stands in for what fetches."""

    loaded = True
    age_seconds = 0.0
    skipped = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


async def check(records: Sequence[Read]) -> Counter[str]:
    """Give every record to all readers of its topic. A reader takes it, or refuses it with a reason or a count."""
    found: Counter[str] = Counter()
    with patch("fleetlore.recall.replica.Follower", _Follower):
        replicas = [LoreReplica("nowhere:1", _TENANT, clock=FakeClock(), most_bytes=most) for most in (inf, 20_000.0)]
    await replicas[0]._complete()  # from now on it shows each record at once
    operators = {each.topic: each for each in (Erased(), Distrusted())}
    views = [AdapterView(kind, _TENANT, TRUSTED) for kind in ADAPTERS]
    for each in records:
        part = TopicPartition(topic(_TENANT, each.topic), 0)
        bytes_of = size(each)
        record = ConsumerRecord(part.topic, 0, 0, 1, 0, each.key, each.value, None, bytes_of, bytes_of, each.headers)
        answer = "taken"
        if each.topic in ("patterns", "items", "decisions"):
            before = replicas[0].unreadable
            for replica in replicas:
                await replica._take({part: [record]})
            answer = "taken" if replicas[0].unreadable == before else "unreadable"
        if each.topic in operators:
            operators[each.topic].take(_TENANT, each.value)
        if each.topic == "adapters":
            refused = []
            for view in views:
                try:
                    view.take(each.key or b"", each.value)
                except AdapterRefused as error:
                    assert error.reason and error.detail
                    refused.append(error.reason)
            answer = min(refused, default="taken")
        if each.topic == "dead-letters":
            answer = "taken" if read_dead_letter(record) is not None else "no dead letter"
        if each.topic in ("trajectories", "judgments"):
            kind: Any = Trajectory if each.topic == "trajectories" else Judgment
            answer = "taken" if list(readable(record.value, kind.from_json)) else "passed over"
        found[answer] += 1
    _advise(replicas[0])
    return found


def _advise(replica: LoreReplica) -> None:
    """Ask for advice about all lore that was read."""
    fleet = fleet_of(Worker())
    fleet.replica = replica
    tools = tuple(each.tool for each in replica.index.patterns.values())[:50]
    with fleet.session("find a chair", "t") as session:
        session.brief(tools)
        for tool in ("search", *tools):
            session.advise(tool, {"index": "x"})
            session.hold(tool, {"index": "x"})
            session.record(tool, {"index": "x"}, error_text="no")
            session.advise()


FOLLOWED = Boundary("followed", make, check, size, full=100_000, batch=1_000)
