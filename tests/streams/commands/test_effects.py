"""`fleetlore uplift` and `fleetlore why` beside a real broker and store."""

import json
import time
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.calls.context import warning_id
from fleetlore.fingerprint.fingerprint import pattern_id
from fleetlore.fingerprint.names import kind_of
from fleetlore.recall.encoder import shared_encoder
from fleetlore.recall.search import row_id
from fleetlore.redact.redact import stored_name
from fleetlore.wire.lore import Decision, Hint
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Judgment
from models.judge import SessionState
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from streams.console.sessions import HintNames, explained
from tests.build import call, judgment, trajectory
from tests.command import run_beside
from tests.streams.console.lore import NOW, family, form, item, snapshot

SECRET = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
HINT = f"item{'a' * 28}"


def session(number: int, *, ended: float) -> Judgment:
    """Of ten sessions one is shown nothing; without the hint all calls fail, and with it a tenth of them."""
    withheld = number % 10 == 0
    error = "no such table" if withheld or number % 10 == 1 else None
    drawn: dict[str, Any] = {"withheld" if withheld else "advice": (HINT,)}
    steps = [call("sql", "SELECT 1", error=error, **drawn), *[call("sql", "SELECT 2")] * (2 if withheld else 1)]
    label = "failure" if withheld else "success"
    return judgment(*steps, session=f"s{number}", agent="ann", task="cars", label=label, ended=ended)


async def test_uplift_says_whether_hints_help(broker: EmbeddedBroker, tenant: str, make_topics: Any) -> None:
    await make_topics(broker.address, tenant, "judgments", "erasures", "patterns", "items", "decisions", partitions=2)
    now = time.time()
    sessions = [session(number, ended=now - 60) for number in range(200)]
    sessions += [session(number, ended=now - 30 * 86_400) for number in range(200, 210)]
    async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
        for each in sessions:
            await producer.send_and_wait(topic(tenant, "judgments"), b"[%b]" % each.to_json())
    at = ("--broker", broker.address, "--tenant", tenant)
    shown = await run_beside("uplift", *at)
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("Yes: 11% of the calls with a hint failed, and 100% of those from which it was")
    (row,) = json.loads((await run_beside("uplift", "--json", *at)).output)["effects"]
    assert (row["sessions"], row["shown"], row["withheld"]) == (200, 180, 20)
    assert row["failures"]["high"] < 0 and row["success"]["low"] > 0 and row["calls"]["high"] < 0
    for by, group in (("hint", HINT), ("source", "unknown"), ("tool", "sql"), ("task", "cars")):
        document = json.loads((await run_beside("uplift", "--by", by, "--since", "90d", "--json", *at)).output)
        assert [(each["group"], each["shown"] + each["withheld"]) for each in document["effects"]] == [(group, 210)]
    assert "sql: A hint that is not known" in (await run_beside("uplift", "--by", "hint", *at)).output
    assert "No hint was drawn" in (await run_beside("uplift", "--by", "tool", "--since", "1m", *at)).output
    empty = (await run_beside("uplift", "--since", "1m", *at)).output
    assert "Not known yet" in empty and empty.split()[-1] == "-"  # no number of sessions is needed for no hint
    assert (await run_beside("uplift", "--since", "1 week", *at)).exit_code == 2


async def test_why_says_what_a_session_was_shown(
    broker: EmbeddedBroker, milvus: str, tenant: str, make_topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topics(broker.address, tenant, "patterns", "items", "decisions")
    monkeypatch.setenv("FLEETLORE_MILVUS", milvus)
    steps = (call("sql", "SELECT 1", error="no such table", advice=(HINT,)), call("sql", "SELECT 2", withheld=(HINT,)))
    state = SessionState(trajectory=trajectory(*steps, session="told", agent="ann", tenant=tenant))
    assert state.trajectory is not None
    parts = [stored_name(f"{SECRET}.{digit * 12}") for digit in "01"]
    resumed = [trajectory(*steps, session=each, agent="ann", tenant=tenant, ended=n) for n, each in enumerate(parts)]
    rows = []
    for of in (state, *(SessionState(trajectory=each) for each in resumed)):
        assert of.trajectory is not None
        row = {"id": row_id(tenant, of.trajectory.id), "tenant": tenant, "session": of.trajectory.session}
        row |= {"task": "", "agent": "ann", "label": "success", "source": "rules", "body": "{}"}
        rows.append(row | {"state": of.to_json().decode(), "text": ""})
    async with MilvusStore(milvus, "", shared_encoder(), Metrics("test")) as store:
        await store.open()
        await store.upsert("judgments", rows)
    async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
        taught = item(HINT, sessions=("k1",), title="Use the view")
        await producer.send_and_wait(topic(tenant, "items"), taught.to_json(), key=HINT.encode())
    at = ("--broker", broker.address, "--tenant", tenant)
    shown = await run_beside("why", "told", *at)
    assert shown.exit_code == 0, shown.output
    for text in (
        "0  sql: shown: Use the view",
        "1  sql: withheld at random: Use the view",
        f"recovery, id {HINT}; 2 agents in 3 sessions",
        "learned in k1",
        "next: sql failed, then sql worked",
    ):
        assert text in shown.output
    document = json.loads((await run_beside("why", state.trajectory.id, "1", "--json", *at)).output)
    assert [(each["call"], each["withheld"], each["then"]) for each in document["hints"]] == [(1, True, "sql worked")]
    assert "no call 9: its calls are 0, 1" in (await run_beside("why", "told", "9", *at)).stderr
    assert "no judged session" in (await run_beside("why", "nobody", *at)).stderr
    # A resumed session has parts under ids of their own, and its id holds a secret.
    shown = await run_beside("why", SECRET, *at)
    assert f"session {parts[1]} of ann" in shown.stdout and f"1 more part: {parts[0]}" in shown.stdout
    assert f"session {parts[0]} of ann" in (await run_beside("why", f"{SECRET}.{'0' * 12}", *at)).stdout


def test_a_hint_without_an_item_is_named_by_its_source() -> None:
    of = family("sql", "Missing", (0, 9, 9))
    failed = form(of, "no such table", id="c" * 32)
    hint = Hint(text="Ask first.", author="kim", written=1.0, start=True)
    index = snapshot(of, failed).index
    index.put_hint(Decision(kind="hint", id="h1", on=False, by="kim", why="", time=1.0, hint=hint))
    ids = {
        warning_id("sql", "after_failure"): "foreseen",
        pattern_id("forbidden", failed.id): "forbidden",
        pattern_id("renamed", failed.id): "renamed",
        "place:card": "card",
        failed.id: "pattern",
        "h1": "person",
        "gone": "",
    }
    steps = [call("sql", advice=tuple(ids))]
    found = list(explained(trajectory(*steps), HintNames(index)))
    assert {each.id: each.source for each in found} == ids
    assert all(each.text and each.then == "sql worked" for each in found)
    assert {each.id: each.evidence for each in found if each.evidence}["h1"] == "written by kim"


def test_hints_that_were_hidden_or_changed_since_are_still_explained() -> None:
    """A person takes back what was wrong, and then asks whom it misled."""
    failed = form(family("sql", "Missing", (0, 9, 9)), "no such table", id="c" * 32)
    index = snapshot(failed, item("i1"), item("i2")).index
    index.revoke(failed.id)
    index.revoke("i1")
    hint = Hint(text="Use oid.", author="kim", written=NOW, start=True, replaces="i2")
    index.put_hint(Decision(kind="hint", id="h1", on=False, by="kim", why="", time=1.0, hint=hint))
    steps = [call("sql", advice=(failed.id, "i1", "i2", "h1"))]
    found = list(explained(trajectory(*steps, ended=NOW - 1), HintNames(index)))
    assert [each.text for each in found] == ["no such table", "title of i1", "title of i2", "Use oid."]
    assert [each.source for each in found] == ["pattern", "recovery", "recovery", "person"]
    assert found[3].evidence == "written by kim since; `fleetlore decisions --history` has the words of then"


def test_a_hint_after_a_failure_says_which_words_it_was_about() -> None:
    of = family("sql", "Missing", (0, 9, 9))
    first = call("sql", "SELECT price FROM cars", error="no such column: price")
    assert first.pattern is not None
    told = [pattern_id(source, first.pattern) for source in ("proposed", "forbidden", "sent again", "renamed")]
    told += [pattern_id("look-up", "sql", kind_of(first).kind), warning_id("sql", "after_failure")]
    second = call("sql", "SELECT cost FROM cars", error="no such column: cost", advice=tuple(told))
    found = [each.text for each in explained(trajectory(first, second), HintNames(snapshot(of).index))]
    assert found == [
        "A name that the error itself proposes: price",
        "Names of the call that do not exist: price",
        "The same call fails again: price",
        "A name of the place instead of one that it does not have: price",
        "How to look up what there is: price",
        "The call will likely fail: cost",
    ]
