"""`fleetlore hints` and `fleetlore decisions --history` on a broker, and what an agent makes of it."""

from collections.abc import AsyncIterator
from dataclasses import replace
from operator import itemgetter
from typing import Any

import orjson
import pytest
from typer.testing import Result

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.advice.advice import Advice, advise
from fleetlore.recall.replica import LoreReplica
from fleetlore.wire.lore import MemoryItem
from sinks.producer import BatchProducer
from streams.stage.base import Outgoing
from tests.build import failed_call, memory_item, situation
from tests.command import run_beside

TOPICS = ("patterns", "items", "decisions", "decisions.history")
TEXT, WHY = "Join orders by order_id.", ("--why", "I know it")
FAILED = failed_call("sql", {"query": "SELECT id FROM orders"}, "OperationalError", "no such column: id")
ITEM = memory_item(
    "item06ed", tool="sql", pattern=FAILED.failure.class_, was=("id",), now=("oid",), when="id", support=9, agents=9
)


class Fleet:
    """A tenant of a broker, the command, and the agents' copy of the lore."""

    def __init__(self, broker: str, tenant: str) -> None:
        self.there = "--broker", broker, "--tenant", tenant
        self.replica = LoreReplica(broker, tenant)

    async def run(self, *arguments: str) -> Result:
        return await run_beside(*arguments, *self.there)

    async def done(self, *arguments: str) -> Any:
        result = await self.run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        assert await self.replica.caught_up(120)
        return orjson.loads(result.stdout)

    async def refused(self, *arguments: str) -> str:
        result = await self.run(*arguments)
        assert result.exit_code in (1, 2)
        return " ".join(result.stderr.split())

    async def approve(self, id: str) -> None:
        """In the words that the person read."""
        read = (await self.done("hints", "show", id))["wording"]
        await self.done("hints", "approve", id, *WHY, "--wording", read)

    async def publish(self, item: MemoryItem) -> None:
        async with BatchProducer(self.there[1]) as producer:
            await producer.deliver([Outgoing(self.there[3], "items", item.id, item.to_json())])
        assert await self.replica.caught_up(120)

    def shown(self) -> Advice:
        return advise(self.replica.index, situation(failed=FAILED, now=1.0))


@pytest.fixture
async def fleet(broker: EmbeddedBroker, tenant: str, make_topics: Any) -> AsyncIterator[Fleet]:
    await make_topics(broker.address, tenant, *TOPICS, partitions=1)
    async with BatchProducer(broker.address) as producer:
        await producer.deliver([Outgoing(tenant, "items", ITEM.id, ITEM.to_json())])
    fleet = Fleet(broker.address, tenant)
    await fleet.replica.start()
    assert await fleet.replica.caught_up(120)
    yield fleet
    await fleet.replica.close()


async def test_a_hint_is_written_shown_changed_ended_and_kept_in_the_history(fleet: Fleet) -> None:
    (added,) = await fleet.done("hints", "add", TEXT, "--after", "OperationalError", *WHY, "--by", "ann")
    assert [tip.text for tip in fleet.shown().tips if tip.source == "person"] == [f"{TEXT} (written by ann)"]
    id = added["id"]
    assert [each["id"] for each in (await fleet.done("hints", "list"))["hints"]] == [id]
    await fleet.done("hints", "edit", id[:8], "--text", "Use oid.", *WHY, "--by", "bob")
    assert fleet.shown().tips[0].text == "Use oid. (written by bob)"
    known = await fleet.done("hints", "show", id)
    assert (known["text"], known["author"], known["state"], known["when"]) == (
        "Use oid.", "bob", "shown", "after OperationalError",
    )  # fmt: skip
    await fleet.done("revoke", "hint", id, *WHY)
    assert id not in fleet.shown().ids
    await fleet.done("revoke", "hint", id, "--undo", *WHY)
    assert id in fleet.shown().ids
    await fleet.done("hints", "expire", id, *WHY)
    assert (await fleet.done("hints", "show", id))["state"] == "ended"
    lines = (await fleet.run("decisions", "--history", "--json")).stdout.splitlines()
    history = [orjson.loads(line) for line in lines]
    assert [(each["key"] if "key" in each else each["id"], each["on"]) for each in history] == [
        (id, on) for on in (False, False, True, False, False)
    ]
    assert history[0]["hint"]["text"] == TEXT and history[1]["hint"]["text"] == "Use oid."
    assert len(await fleet.done("decisions")) == 1
    assert " ended " in (await fleet.run("decisions")).stdout
    assert TEXT not in (await fleet.run("hints", "list")).stdout


async def test_an_edit_takes_back_what_an_option_gave(fleet: Fleet) -> None:
    given = "--start", "--before", "orders", "--tool", "sql", "--until", "30d"
    (added,) = await fleet.done("hints", "add", TEXT, *given, *WHY)
    taken = "--no-start", "--before", "", "--tool", "", "--until", "never", "--after", "Missing"
    (edited,) = await fleet.done("hints", "edit", added["id"], "--text", TEXT, *taken, *WHY)
    assert {"start", "before", "tool"} <= added["hint"].keys() and added["hint"]["until"] > 0
    assert edited["hint"].keys() == {"text", "author", "written", "after", "until"} and edited["hint"]["until"] == 0


async def test_a_correction_stands_in_the_place_of_an_item_through_replays(fleet: Fleet) -> None:
    assert "`oid`" in fleet.shown().text
    (made,) = await fleet.done("hints", "edit", "item06", "--text", TEXT, *WHY, "--by", "ann")
    assert made["hint"]["replaces"] == ITEM.id and made["hint"]["before"] == ["id"]
    await fleet.publish(ITEM)  # as a replay does
    assert [tip.source for tip in fleet.shown().tips] == ["person"]
    assert (await fleet.done("hints", "show", "item06"))["state"] == f"corrected by {made['id']}"
    assert "(corrected) " in (await fleet.run("items")).stdout
    assert made["id"] in (await fleet.run("items", "item06")).stdout
    (taken,) = await fleet.done("hints", "reject", "item06", *WHY)
    assert taken["id"] == made["id"] and "`oid`" in fleet.shown().text
    await fleet.approve(made["id"])
    await fleet.done("revoke", "item", "item06", *WHY)
    await fleet.done("hints", "reject", made["id"], *WHY)
    assert not fleet.shown().tips


async def test_an_item_that_is_shown_again_keeps_its_approval(fleet: Fleet) -> None:
    async def is_shown_again(*hide: str) -> bool:
        await fleet.done(*(hide or ("revoke", "item")), ITEM.id, *WHY)
        assert not fleet.shown().tips
        await fleet.done("revoke", "item", ITEM.id, "--undo", *WHY)
        return "`oid`" in fleet.shown().text

    waits = replace(ITEM, proposed=True)
    await fleet.publish(waits)
    assert not await is_shown_again(), "nobody approved it"
    await fleet.approve(ITEM.id)
    assert await is_shown_again()
    assert await is_shown_again("hints", "reject")
    assert await is_shown_again(), "the undo holds the approval, too"
    await fleet.publish(replace(waits, now=("other",)))
    assert not await is_shown_again(), "nobody approved these words"


async def test_lessons_are_approved_and_rejected_together_or_not_at_all(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant, broker = fleet.there[3], fleet.there[1]
    waiting = [memory_item(f"item{n}", tool="sql", was=("a",), now=(f"b{n}",), proposed=True) for n in range(3)]
    async with BatchProducer(broker) as producer:
        await producer.deliver([Outgoing(tenant, "items", each.id, each.to_json()) for each in waiting])
    rows = sorted((await fleet.done("hints", "list", "--proposed"))["hints"], key=itemgetter("id"))
    assert [each["id"] for each in rows] == ["item0", "item1", "item2"]
    assert "no hint or memory item begins with 'gone'" in await fleet.refused("hints", "approve", "item1", "gone", *WHY)
    assert len((await fleet.done("hints", "list", "--proposed"))["hints"]) == 3
    with monkeypatch.context() as patch:
        start, started = BatchProducer.start, list[BatchProducer]()

        async def counted(producer: BatchProducer) -> None:
            started.append(producer)
            await start(producer)

        patch.setattr(BatchProducer, "start", counted)
        assert "one --wording for each" in await fleet.refused("hints", "approve", "item1", "item2", *WHY)
        read = [each["wording"] for each in rows if each["id"] in ("item1", "item2")]
        old = "--wording", read[0], "--wording", "0" * 16
        assert "`b" in await fleet.refused("hints", "approve", "item1", "item2", *WHY, *old)
        assert "one --wording for each" in await fleet.refused("hints", "approve", "item1", *WHY, *old)
        assert not started, "none is approved"
        await fleet.done("hints", "approve", "item1", "item2", *WHY, "--wording", read[0], "--wording", read[1])
        assert len(started) == 1, "a hundred lessons would open a hundred connections"
    await fleet.done("hints", "reject", "item0", *WHY)
    assert not (await fleet.done("hints", "list", "--proposed"))["hints"]
    assert fleet.replica.index.vouched(waiting[1]) is True and "item0" not in fleet.replica.index.items


async def test_words_that_a_person_did_not_type_are_printed_and_asked_for(fleet: Fleet) -> None:
    for command, instead in ((("approve", ITEM.id), "--wording"), (("edit", ITEM.id, "--until", "30d"), "--text")):
        refused = await fleet.refused("hints", *command, *WHY)
        assert f"no terminal to ask; give {instead}" in refused.replace(" one ", " "), refused
        assert "Use `oid` instead of `id` in sql." in refused
    assert not (await fleet.done("decisions")), "nothing was decided"


async def test_bad_input_is_explained(fleet: Fleet) -> None:
    assert "say when agents are shown it" in await fleet.refused("hints", "add", TEXT, *WHY)
    for why in (" ", "caf\udce9"):  # as a terminal in Latin-1 sends it
        assert "1 to 500 characters" in await fleet.refused("hints", "add", TEXT, "--start", "--why", why)
    assert "is no date" in await fleet.refused("hints", "add", TEXT, "--start", "--until", "soon", *WHY)
    assert "year 9999" in await fleet.refused("hints", "add", TEXT, "--start", "--until", "99999999d", *WHY)
    assert "--by must be" in await fleet.refused("hints", "add", TEXT, "--start", *WHY, "--by", "a\x1b[31m")
    for id in ("x", ""):
        assert f"no hint or memory item begins with {id!r}" in await fleet.refused(
            "hints", "edit", id, "--text", "y", *WHY
        )
    assert "reject it" in await fleet.refused("hints", "expire", ITEM.id, *WHY)


async def test_an_author_is_the_login_where_there_is_one(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLORE_KAFKA_SASL_USERNAME", "ann")
    monkeypatch.setenv("FLEETLORE_KAFKA_SASL_PASSWORD", "x")
    monkeypatch.setenv("FLEETLORE_KAFKA_SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("FLEETLORE_KAFKA_SECURITY_PROTOCOL", "SASL_PLAINTEXT")
    from fleetlore.config import Settings
    from streams.commands.lore.hints import author

    assert author(Settings.from_env(), "") == author(Settings.from_env(), "ann") == "ann"
    with pytest.raises(Exception, match="knows you as ann"):
        author(Settings.from_env(), "root")
