"""No topic, file or page holds the name or the words of an erased person, and every decision is still counted."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import TopicAuthorizationFailedError, UnknownError
from msgspec.structs import replace

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.config import Settings
from fleetlore.kafka.read import read_to_end
from fleetlore.recall.replica import LoreReplica
from fleetlore.wire.lore import DECISIONS, HISTORY, Decision, Hint
from fleetlore.wire.topics import topic
from sinks.producer import BatchProducer
from streams.console.sources import Sources
from streams.embedded.kept_decisions import KeptDecisions
from streams.offline.erase import erase_persons, remaining, rewritten
from streams.offline.operator_word import decide, read_decisions
from streams.stage.base import Outgoing
from streams.stage.operators import Erased, put_in_history, without
from tests.doubles.memory_log import InMemoryLog
from tests.waiting import until

HERS, REASON = "Join orders by zebrafish.", "zebrafish told me"
TOPICS = "patterns", "items", "erasures", "judgments", "dead-letters", DECISIONS, HISTORY
MARKS = (b"ann", b"zebrafish")


def hint(id: str, time: float, author: str, by: str, text: str = HERS, on: bool = False) -> Decision:
    written = Hint(text=text, author=author, written=1.0, start=True)
    why = REASON if by == "ann" else "checked"
    return Decision(kind="hint", id=id, on=on, by=by, why=why, time=time, hint=written)


def item(time: float, by: str) -> Decision:
    return Decision(kind="item", id="i1", on=True, by=by, why=REASON if by == "ann" else "wrong", time=time)


MADE = [
    hint("h1", 1.0, "ann", "ann"),
    hint("h1", 2.0, "ann", "bob"),  # he approves it in her words
    hint("h2", 3.0, "bob", "bob", "Use the view."),
    hint("h2", 4.0, "bob", "ann", "Use the view.", on=True),  # she rejects it
    item(5.0, "bob"),
    item(6.0, "ann"),
]
# Time, id, who decided, why, and the hint's text.
LEFT = [
    (1.0, "h1", "(erased)", "", None),
    (2.0, "h1", "bob", "checked", None),
    (3.0, "h2", "bob", "checked", "Use the view."),
    (4.0, "h2", "(erased)", "", "Use the view."),
    (5.0, "i1", "bob", "wrong", None),
    (6.0, "i1", "(erased)", "", None),
]


def told(decisions: list[Decision]) -> list[tuple[object, ...]]:
    return [(each.time, each.id, each.by, each.why, each.hint and each.hint.text) for each in decisions]


def test_an_append_only_log_is_written_once_more_without_the_person() -> None:
    log = InMemoryLog()
    broken, foreign = b"no json", b'{"kind":"from tomorrow"}'
    for value in (b"[%b,%b]" % (MADE[0].to_json(), MADE[2].to_json()), MADE[5].to_json(), foreign, broken):
        log.append(HISTORY, value)
    log.append(HISTORY, b"[%b]" % MADE[2].to_json())  # a run that was stopped before it deleted anything
    values, held = rewritten([each.value or b"" for each in log.read_all(HISTORY)], "ann".__eq__)
    end = log.end_offset(HISTORY, 0)
    for value in values:
        log.append(HISTORY, value)
    log.delete_before(HISTORY, 0, end)
    kept = [each.value or b"" for each in log.read_all(HISTORY)]
    assert held == 2 and not [each for each in kept if any(mark in each for mark in MARKS)]
    assert kept[0] == foreign and told([Decision.from_json(each) for each in kept[1:]]) == [LEFT[0], LEFT[2], LEFT[5]]
    assert rewritten(kept, "ann".__eq__) == (kept, 0)


def test_only_an_erasure_replaces_a_decision_of_the_history() -> None:
    known: dict[str, Decision] = {}
    for each in (MADE[4], replace(MADE[4], by="eve"), replace(MADE[4], why="harmless"), without(MADE[4], "bob".__eq__)):
        put_in_history(known, each.to_json())
    assert [(each.by, each.why) for each in known.values()] == [("(erased)", ""), ("eve", "wrong"), ("bob", "harmless")]


async def test_nothing_that_follows_the_decisions_holds_the_person(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    deletes = bool(pytestconfig.getoption("--kafka"))
    await make_topics(broker.address, tenant, *TOPICS, partitions=1)
    settings = Settings(broker=broker.address, tenants=(tenant,), fetch_wait_ms=50)
    kept = tmp_path / "decisions.json"

    async with Sources(settings, tenant, []) as console, BatchProducer(broker.address) as producer:
        following = asyncio.create_task(KeptDecisions(kept, settings).follow())
        for each in MADE:
            await decide(settings, tenant, each)
        await until(
            lambda: len(console.snapshot().history) == len(MADE) and kept.exists() and b"i1" in kept.read_bytes()
        )

        for dry_run in (True, False):
            found = await erase_persons(settings, tenant, "ann".__eq__, producer.deliver, now=9.0, dry_run=dry_run)
            assert found.decisions == {DECISIONS: 3, HISTORY: 4}
        assert bool(found.refused) is not deletes, "tansu deletes no record"
        assert told(await read_decisions(settings, tenant, 120, HISTORY)) == LEFT
        assert sorted(told(await read_decisions(settings, tenant, 120))) == [LEFT[3], LEFT[5]]
        await until(lambda: told(list(reversed(console.snapshot().history))) == LEFT)
        await until(lambda: "h1" not in {each.id for each in console.snapshot().decisions.values()})
        await until(lambda: not any(mark in kept.read_bytes() for mark in MARKS))
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
    if deletes:
        values = [each.value or b"" for each in await read_to_end(broker.address, [topic(tenant, HISTORY)], 120)]
        assert values and not [each for each in values if any(mark in each for mark in MARKS)]
    left = remaining(settings, compacting=False, persons=found._replace(refused=UnknownError()))
    assert left[f"topic {HISTORY}"].endswith("until the topic's retention ends")
    left_by_login = remaining(
        settings, compacting=False, persons=found._replace(refused=TopicAuthorizationFailedError())
    )
    assert "the right Delete" in left_by_login[f"topic {HISTORY}"]
    assert "reasons that persons gave" in left["topic adapters"]
    gone = remaining(settings, compacting=False, persons=found._replace(refused=None))
    assert "segment.ms" in gone[f"topic {HISTORY}"] and "max.compaction.lag.ms" in gone[f"topic {DECISIONS}"]
    index = await LoreReplica.snapshot(broker.address, tenant)
    assert set(index.hints.decisions) == {"h2"} and not index.hints.standing, "what she decided still holds"


async def test_a_decision_that_is_made_meanwhile_still_counts(
    broker: EmbeddedBroker, tenant: str, make_topics: Any
) -> None:
    await make_topics(broker.address, tenant, *TOPICS)
    settings = Settings(broker=broker.address, tenants=(tenant,), fetch_wait_ms=50)
    theirs = hint("h1", 8.0, "bob", "bob", "Use the view."), replace(item(9.0, "bob"), on=False)
    hers = hint("h3", 2.0, "ann", "ann"), hint("h4", 2.0, "bob", "ann", "Use the view.")
    for each in (MADE[0], MADE[5], *hers):
        await decide(settings, tenant, each)
    meanwhile = [*theirs, replace(hers[0], by="bob", why="checked", time=9.0)]

    async with BatchProducer(broker.address) as producer:

        async def deliver(values: Sequence[Outgoing]) -> None:
            if any(each.topic == DECISIONS for each in values):
                while meanwhile:
                    await decide(settings, tenant, meanwhile.pop())
                    await producer.deliver([Outgoing(tenant, DECISIONS, hers[1].key, None)])  # erased by another run
            await producer.deliver(values)

        await erase_persons(settings, tenant, "ann".__eq__, deliver, now=9.0, dry_run=False)
    newest = await read_decisions(settings, tenant, 120)
    assert sorted(newest, key=lambda each: each.time) == list(theirs)


async def test_an_older_export_brings_nobody_of_an_erased_tenant_back(
    broker: EmbeddedBroker, tenant: str, make_topics: Any
) -> None:
    await make_topics(broker.address, tenant, *TOPICS)
    settings, erased = Settings(broker=broker.address, tenants=(tenant,), fetch_wait_ms=50), Erased()
    for each in MADE:
        await decide(settings, tenant, each)
    by_eve = replace(MADE[5], id="i2", by="eve")
    async with BatchProducer(broker.address) as producer:
        # A decision of a release without the history.
        await producer.deliver([Outgoing(tenant, DECISIONS, by_eve.key, by_eve.to_json())])
        for dry_run in (True, False):
            await erased.read(broker.address, [tenant])
            assert not erased.count
            await erase_persons(settings, tenant, lambda _: True, producer.deliver, now=9.0, dry_run=dry_run)
    await erased.read(broker.address, [tenant])
    names = {name for name in ("ann", "bob", "eve", "(erased)", "kim") if erased.drops(tenant, "", name, 8.0)}
    assert names == {"ann", "bob", "eve"} and not erased.drops(tenant, "", "ann", 9.0)
