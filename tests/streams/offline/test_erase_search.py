"""An erasure finds all that a session left and nothing of others, and the versions that have learned of it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unicodedata import normalize

import orjson
import pytest

from benchmarks.cloudevents import encode_record
from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.adapters.signatures import create_signing_key
from fleetlore.config import Settings
from fleetlore.kafka.read import read_to_end
from fleetlore.recall.search import row_id
from fleetlore.redact.redact import stored_name
from fleetlore.wire.adapter_manifest import AdapterManifest, CallsManifest, DataRange
from fleetlore.wire.events import BATCH_HEADERS, OUTCOME, Event
from fleetlore.wire.principals import principal_of, review_key, session_key
from fleetlore.wire.stats import stable_hash
from fleetlore.wire.topics import ADAPTER_TOPICS, topic
from sinks.adapter_publisher import AdapterPublisher, LocalMirror
from streams.offline.erase import has_learned, learned_versions
from streams.offline.erase_search import Found, OnTopic, Wanted, find
from streams.offline.operator_word import contributed
from streams.stage.base import Outgoing
from streams.stage.operators import Erasure
from tests.random_adapters import version_of
from tests.rows import for_each
from tests.streams.log_pipeline import BASE_TIME, LogPipeline

FAILED = ("deploy", {"mode": "fast"}, "", "unknown mode 'fast'")
WORKED = ("deploy", {"mode": "quick"}, "done", None)
REVIEW = stable_hash(review_key("same"))


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> LogPipeline:
    pipeline = LogPipeline()

    async def records_of(_: Any, name: str) -> AsyncIterator[Any]:
        for record in pipeline.log.read_all(name):
            yield record

    monkeypatch.setattr("streams.offline.erase_search.records_of", records_of)
    return pipeline


async def found(pipeline: LogPipeline, **scope: Any) -> Found:
    return await find(Settings(), pipeline.store, Wanted(tenant=pipeline.tenant, **scope))


def rows(pipeline: LogPipeline, *ids: str) -> set[str]:
    return {row_id(pipeline.tenant, id) for id in ids}


SECRET = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"


@pytest.mark.parametrize("name", [f"job-{SECRET}", SECRET, f"alice:{SECRET}", f"{SECRET}:worker"])
async def test_a_name_that_holds_a_secret_is_found_by_its_original(pipeline: LogPipeline, name: str) -> None:
    """It is stored under another name."""
    await pipeline.send(pipeline.story.session(name, FAILED, agent=name))
    await pipeline.send(pipeline.story.session("other", FAILED, agent="other"))
    stored = stored_name(name)
    assert SECRET not in stored
    for scope in ({"session": name}, {"agent": name}, {"session": name, "agent": name}, {"session": stored}):
        assert set((await found(pipeline, **scope)).parts) == {(principal_of(stored), stored)}, scope
    part = f"{name}.0123456789ab"  # it was resumed
    await pipeline.send(pipeline.story.session(part, FAILED, agent="bob"))
    parts = set((await found(pipeline, session=name)).parts)
    assert parts == {(principal_of(stored), stored), ("bob", f"{stored}.0123456789ab")}


@pytest.mark.parametrize("judged", [True, False])
async def test_feedback_on_an_id_stays_while_another_principal_has_a_session_of_it(
    pipeline: LogPipeline, judged: bool
) -> None:
    """Whoever takes the ids of others and is erased takes no verdict from them."""
    outcome = "success" if judged else None
    await pipeline.send(pipeline.story.session("same", WORKED, agent="good", outcome=outcome))
    await pipeline.send(pipeline.story.session("same", FAILED, agent="evil"))
    await pipeline.take([pipeline.story.feedback("same", "failure")])
    erased = await found(pipeline, agent="evil")
    assert set(erased.rows) == rows(pipeline, session_key("evil", "same"))
    assert stable_hash(session_key("evil", "same")) in erased.hashes and REVIEW not in erased.hashes
    for hashes in erased.by_session:
        pipeline.operators.erased.take(pipeline.tenant, Erasure(time=1.0, sessions=hashes).to_json())
    await pipeline.send(pipeline.story.session("same", WORKED, agent="good"))
    await pipeline.take([pipeline.story.feedback("same", "success", 1, BASE_TIME + 200)])
    labels = [(row["session"], row["label"]) for row in await pipeline.bodies("judgments")]
    assert ("same", "success") in labels, "a correction after the erasure counts"
    both = await found(pipeline, session="same")
    keys = session_key("good", "same"), session_key("evil", "same"), review_key("same")
    assert set(both.rows) == rows(pipeline, *keys) and REVIEW in both.hashes


async def test_feedback_goes_with_the_only_session_of_its_id(pipeline: LogPipeline) -> None:
    await pipeline.send(pipeline.story.session("same", FAILED, agent="evil"))
    await pipeline.take([pipeline.story.feedback("same", "failure")])
    erased = await found(pipeline, agent="evil")
    assert set(erased.rows) == rows(pipeline, session_key("evil", "same"), review_key("same"))
    assert REVIEW in erased.hashes and {"feedback", "events", "judgments"} <= set(erased.topics)


@pytest.mark.parametrize("agent", ["good", "evil"])
async def test_a_claim_belongs_to_the_agent_that_made_it(pipeline: LogPipeline, agent: str) -> None:
    """It waits in a row of its own for a session that has not come."""
    claim = Event("feedback", pipeline.tenant, "evil", "same", 7, BASE_TIME, {OUTCOME: "failure"})
    await pipeline.send_raw(encode_record([claim]), headers=BATCH_HEADERS)
    await pipeline.take(pipeline.story.session("same", WORKED, agent="good"))
    erased = await found(pipeline, agent=agent)
    assert set(erased.rows) == rows(pipeline, session_key(agent, "same"))


@pytest.mark.parametrize("stored", ["NFC", "NFD"])
@pytest.mark.parametrize("asked", ["NFC", "NFD"])
async def test_a_name_is_found_in_each_normal_form_and_acks_name_agents(
    pipeline: LogPipeline, stored: Any, asked: Any
) -> None:
    kept, given = normalize(stored, "Jos\u00e9"), normalize(asked, "Jos\u00e9")
    await pipeline.send(pipeline.story.session(f"{kept} 1", FAILED, agent=kept))
    await pipeline.drain()
    odd = b"junk", b"[]", b'{"agent": "\xff"}', b'{"agent": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    for value in (orjson.dumps({"adapter": "calls", "agent": kept}), b'{"agent": "ann"}', *odd):
        pipeline.log.append(topic(pipeline.tenant, "adapters.acks"), value)
    row = rows(pipeline, session_key(kept, f"{kept} 1"))
    for scope, acks in (({"agent": given}, 1), ({"session": f"{given} 1"}, 0), ({"everything": True}, 2)):
        erased = await found(pipeline, **scope)
        assert set(erased.rows) == row
        assert erased.topics.get("adapters.acks", OnTopic()).records == acks


def test_a_record_that_nothing_can_read_ends_no_erasure() -> None:
    good = b'{"item_id":"i","session":"s"}'
    deep = b'{"item_id":"i","x":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    found = [list(contributed("t", value, {"i"}, set())) for value in (good, deep, b'{"item_id":"\xff"}', b"[", b"1")]
    assert found == [[Outgoing("t", "candidates", "i", good)], [], [], [], []]


async def test_a_correction_wakes_no_session_that_is_being_erased(pipeline: LogPipeline) -> None:
    await pipeline.take(pipeline.story.session("same", WORKED, agent="evil"))
    before = pipeline.log.read_all(f"fleetlore.{pipeline.tenant}.judgments")
    pipeline.operators.erased.add_sessions(pipeline.tenant, [stable_hash(session_key("evil", "same"))])
    await pipeline.take([pipeline.story.feedback("same", "failure")])
    assert pipeline.log.read_all(f"fleetlore.{pipeline.tenant}.judgments") == before


def finding(offset: int | None, ended: float = 100.0) -> Found:
    made = Found()
    made.add("a", "s", 0, ended)
    if offset is not None:
        made.topics["trajectories"] = OnTopic(places={(0, offset)}, sessions={stable_hash(session_key("a", "s"))})
    return made


def calls(start: int, stop: int, created: float) -> AdapterManifest:
    data = (DataRange("fleetlore.t.trajectories", 0, start, stop),)
    return CallsManifest(
        version="v", ordinal=1, parent=None, tenant="t", size_bytes=1, data=data, sessions=9, agents=2, tools=(),
        metrics={}, created=created, calls=9,
    )  # fmt: skip


@for_each(
    "offset, ended, created, learned",
    (5, 100.0, 200.0, True),
    (10, 100.0, 200.0, False),  # behind what it read
    (None, 100.0, 200.0, True),  # its record has left the log: taken for one that was read
    (None, 100.0, 50.0, False),  # the version is older
    (None, 0.0, 200.0, False),  # nobody knows such a session
)
def test_a_call_model_has_learned_what_its_ranges_hold(
    offset: int | None, ended: float, created: float, learned: bool
) -> None:
    version = calls(0, 10, created)
    assert has_learned(version, finding(offset, ended)) is learned


async def test_nothing_is_left_of_a_version_that_has_learned_of_it(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, tmp_path: Path
) -> None:
    """The topic is compacted: what is not deleted there, weights and the names in them, stays for ever."""
    await make_topics(broker.address, tenant, *ADAPTER_TOPICS, "adapters.acks", partitions=1)
    create_signing_key(tmp_path / "key")
    store = LocalMirror(tmp_path / "store")
    settings = Settings(
        broker=broker.address, tenants=(tenant,), signing_key=str(tmp_path / "key"), adapters_dir=str(store.folder)
    )
    made = {}
    async with AdapterPublisher.from_settings(CallsManifest, settings) as publisher:
        for number, (start, stop) in enumerate([(6, 9), (0, 6), (0, 9)], 1):
            data = (DataRange(topic(tenant, "trajectories"), 0, start, stop),)
            made[number] = version_of(CallsManifest, number, tenant, ordinal=number, data=data)
            await publisher.publish(*made[number])
        await publisher.revoke(tenant, made[2][1].version)  # by a person, for another reason
        learned = await learned_versions(settings, tenant, finding(5), erase=True)
        assert learned == [f"calls/{made[number][1].version}" for number in (3, 2)]
        records = await read_to_end(broker.address, [topic(tenant, "adapters")], 120)
        newest = {each.key: each.value for each in records if not each.key.startswith(b"revoked/")}
        innocent = made[1][1]
        mine = f"calls/{innocent.version}".encode()
        assert {key for key, value in newest.items() if value} == {mine}
        assert {key for key, _ in store.records(tenant, "calls") if key.startswith(b"calls/")} == {mine}
        published = await publisher.published(tenant)
        assert published.stable is not None and published.stable.manifest.version == innocent.version
        assert all(published.is_revoked(made[number][1].version) for number in (2, 3))
        assert await learned_versions(settings, tenant, finding(5), erase=True) == []
