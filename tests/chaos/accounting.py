"""Check after a run that every acknowledged event is accounted for, and the knowledge is what it would have been."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from benchmarks.replay import TIMES, count_dead_letters, read_knowledge
from fleetlore.config import Settings
from fleetlore.kafka.read import read_to_end
from fleetlore.wire.events import Event
from fleetlore.wire.topics import topic
from sinks.milvus import MilvusStore
from streams.runtime.stale_records import SOURCES
from streams.stage.base import Store

MEND_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Account:
    """One line of the table.

    Attributes:
        lost: acknowledged events that are in no judged session and no dead letter.
        doubled: events behind a judgment that were never sent.
        equal: agents read, key by key, the lore that an undisturbed run of the same events learns.
    """

    scenario: str
    kills: int
    events: int
    dead_letters: int
    lost: int
    doubled: int
    equal: bool
    seconds: float


async def account(
    scenario: str,
    tenant: str,
    settings: Settings,
    store: MilvusStore,
    events: Iterable[Event],
    acknowledged: int,
    kills: int,
    undisturbed: str,
    seconds: float,
) -> Account:
    """Look at what a tenant has, where all of `events` were acknowledged.

    Args:
        undisturbed: the state hash of a run in which nothing happened.
    """
    sent = Counter(event.session for event in events)
    assert acknowledged == sent.total()
    deadline = time.monotonic() + MEND_SECONDS
    while True:
        knowledge = await read_knowledge(store, tenant)
        equal = knowledge.state_hash == undisturbed and not await _stale_lore(settings, store, tenant)
        # An owner may be writing over again what a former one had sent late.
        if equal or time.monotonic() > deadline:
            break
        await asyncio.sleep(1.0)
    judged = Counter({session: count for session, _, count in knowledge.judgments})
    letters = await count_dead_letters(settings, tenant)
    return Account(
        scenario,
        kills,
        acknowledged,
        letters,
        max(0, (sent - judged).total() - letters),
        (judged - sent).total(),
        equal,
        seconds,
    )


async def _stale_lore(settings: Settings, store: MilvusStore, tenant: str) -> list[str]:
    """Keys of the compacted topics that are not what the store has."""
    names = {topic(tenant, name): name for name in SOURCES}
    newest: dict[str, dict[str, bytes | None]] = {name: {} for name in SOURCES}
    for record in await read_to_end(settings.cluster, names, MEND_SECONDS):
        newest[names[record.topic]][record.key.decode()] = record.value
    return [key for keys in (await stale_keys(store, tenant, newest)).values() for key in keys]


async def stale_keys(
    store: Store, tenant: str, newest: Mapping[str, Mapping[str, bytes | None]]
) -> dict[str, list[str]]:
    """Keys of the compacted topics whose newest record is not what the store has, times left out.

    Args:
        newest: by collection and key: the newest value on its topic. Agents read these, and never the store.
    """
    stale: dict[str, list[str]] = {}
    for collection, values in newest.items():
        rows = {row["id"].partition("/")[2]: row["body"] async for row in store.rows(collection, tenant, "body")}
        stale[collection] = sorted(
            key for key in rows.keys() | values.keys() if _content(rows.get(key)) != _content(values.get(key))
        )
    return stale


def _content(body: str | bytes | None) -> dict[str, object] | None:
    return {name: value for name, value in orjson.loads(body).items() if name not in TIMES} if body else None


def table(accounts: Iterable[Account]) -> list[str]:
    """The accounts in Markdown."""
    lines = [
        "| scenario | kills | events | dead letters | lost | doubled | state equal | seconds |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- | ---: |",
    ]
    for each in accounts:
        equal = "yes" if each.equal else "NO"
        lines.append(
            f"| {each.scenario} | {each.kills} | {each.events:,} | {each.dead_letters} | {each.lost} | {each.doubled} "
            f"| {equal} | {each.seconds:.0f} |"
        )
    return lines


def add_rows(page: Path, name: str, accounts: Iterable[Account]) -> None:
    """Put accounts into a table of a page, each in the place of an earlier one of its scenario."""
    head, rule, *new = table(accounts)
    [there] = re.findall(rf"<!-- table: {name} -->\n(.*?)<!-- end -->", page.read_text(), re.DOTALL)
    old = [line for line in there.splitlines() if line.startswith("|")][2:]
    put_table(page, name, [head, rule, *{row.split("|")[1]: row for row in (*old, *new)}.values()])


def put_table(page: Path, name: str, lines: Iterable[str]) -> None:
    """Replace what stands on a page between `<!-- table: NAME -->` and `<!-- end -->`."""
    table = "\n".join(["", *lines, ""])
    mark = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    page.write_text(mark.sub(lambda found: f"{found[1]}{table}\n{found[2]}", page.read_text()))
