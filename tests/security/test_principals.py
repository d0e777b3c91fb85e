"""Be three agents: one process that names itself as it likes, where counts, quorums and distrust go by principal."""

from typing import Any

import pytest
from aiokafka import ConsumerRecord
from typer.testing import CliRunner

from benchmarks.cloudevents import encode_record
from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.cli.app import build_app
from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.kafka.emitter import Emitter
from fleetlore.kafka.read import read_to_end
from fleetlore.testing import FakeClock
from fleetlore.wire.dead_letter import DeadLetterRecord, read_dead_letter
from fleetlore.wire.events import Event
from fleetlore.wire.lore import Decision
from fleetlore.wire.principals import SIGNED_BY, Principals, principal_of, session_key, signer
from fleetlore.wire.topics import topic
from sinks.metrics import Metrics
from sinks.redrive import _record
from streams.commands.topics import register
from streams.offline.memory_pipeline import MemoryPipeline, MemoryStore
from streams.runtime.bad_records import record_of
from streams.runtime.worker import run_worker
from streams.stage.base import DeadLetter, Effects, Record
from streams.stage.operators import Distrusted
from streams.stages.pipeline import FeedbackStage, pipeline
from streams.stages.s1_sessions.parse import read_events
from tests.rows import for_each
from tests.streams.log_pipeline import BASE_TIME, Story

SECRET = "of-the-workers-of-this-test-0123456789"
EVENTS, FEEDBACK = topic("default", "events"), topic("default", "feedback")
KNOWN = Principals(SECRET)


def events(*agents: str, tenant: str = "default") -> list[Event]:
    return [Story(tenant).session(f"s-{agent}", agent=agent)[0] for agent in agents]


def record(value: bytes, key: str = "", signed_for: str = EVENTS, name: str = EVENTS) -> Record:
    sign = signer(key)
    return Record(name, 0, 0, None, value, dict([sign(signed_for, value)] if sign else []), BASE_TIME + 10)


def reasons(made: Record, name: str = EVENTS) -> tuple[list[str], list[str]]:
    """Agents whose events were taken, and why others were not."""
    effects = Effects()
    taken = read_events(made._replace(topic=name), effects, KNOWN)
    assert effects.processed == len(taken)
    return [each.agent for each in taken], [each.reason for each in effects.dead_letters]


def test_a_principal_speaks_as_its_own_agents_alone() -> None:
    value = encode_record(events("evil", "evil:1", "good", "evil2", "evil:good"))
    assert reasons(record(value, KNOWN.key_of("evil"))) == (["evil", "evil:1", "evil:good"], ["foreign_principal"] * 2)


async def test_two_spellings_of_a_name_are_one_principal() -> None:
    composed, combining = "caf\u00e9", "cafe\u0301"
    assert principal_of(f"{combining}:1") == principal_of(f"{composed}:2") == composed
    assert session_key(f"{combining}:1", "s") == session_key(composed, "s")
    value = encode_record(events(composed, f"{combining}:1", "cafe"))
    for key in (KNOWN.key_of(composed), KNOWN.key_of(combining), KNOWN.key_of(composed).replace(composed, combining)):
        assert reasons(record(value, key)) == ([composed, f"{combining}:1"], ["foreign_principal"])
    pipeline = await learned(composed, combining, f"{combining}:2")
    assert {each.agents for each in pipeline.index.patterns.values()} == {1}


def test_a_relay_speaks_as_any_agent() -> None:
    agents = ["good", "good:2", "other"]
    assert reasons(record(encode_record(events(*agents)), KNOWN.key_of("*"))) == (agents, [])


@for_each("changed", "nothing", "garbage", "key", "topic", "value", "name", "binary")
def test_what_nobody_signed_is_not_taken(changed: str) -> None:
    value = encode_record(events("good"))
    made = record(value, KNOWN.key_of("good"))
    headers = dict(made.headers)
    made = {
        "nothing": made._replace(headers={}),
        "garbage": made._replace(headers={SIGNED_BY: b"good \xff\xc3\xa4"}),
        "key": record(value, Principals(SECRET + "x").key_of("good")),
        "topic": record(value, KNOWN.key_of("good"), signed_for=FEEDBACK),
        "value": made._replace(value=value + b" "),
        "name": made._replace(headers={SIGNED_BY: headers[SIGNED_BY].replace(b"good", b"*")}),
        "binary": made._replace(headers={**headers, "ce_specversion": b"1.0"}),
    }[changed]
    assert reasons(made) == ([], ["unsigned"])


@for_each("name, stage", (EVENTS, 0), (FEEDBACK, 1))
async def test_the_first_stage_and_that_of_feedback_take_nothing_unsigned(name: str, stage: int) -> None:
    stages = pipeline(MemoryStore(), Metrics("test"), FakeClock(), Settings(principal_key=SECRET))
    value = encode_record(events("good") if not stage else [Story("default").feedback("s", "failure")])
    effects = await stages[stage].process([record(value, name=name)])
    assert [each.reason for each in effects.dead_letters] == ["unsigned"] and not effects.outgoing
    key = KNOWN.key_of("good" if not stage else "reviewer")
    assert not (await stages[stage].process([record(value, key, name, name)])).dead_letters


async def learned(*agents: str) -> MemoryPipeline:
    """A fleet in which each agent found the same way past the same failure."""
    memory = MemoryPipeline()
    for number, agent in enumerate(agents):
        made: list[Any] = []
        with memory.session(agent, f"ship {number}", "", f"s{number}", made) as session:
            session.record("deploy", {"env": "prod"}, error_text="Error: permission denied for project alpha")
            session.record("deploy", {"env": "prod", "no_verify": True}, result="done")
            session.succeed()
        await memory.take(made)
    return memory


@for_each(
    "agents, told",
    (("evil:1", "evil:2", "evil:3"), False),
    (("evil:1", "evil:2", "good"), False),
    (("evil", "evil:1", "evil:2", "evil:3", "evil:4", "good"), False),
    (("one:1", "two:1", "three"), True),
)
async def test_one_process_that_names_three_agents_is_no_quorum(agents: tuple[str, ...], told: bool) -> None:
    memory = await learned(*agents)
    # A remedy that turns a check off needs three agents.
    assert any(each.danger for each in memory.index.items.values()) is told
    (pattern,) = [each for each in memory.index.patterns.values() if each.level == "class" and each.failures]
    assert pattern.agents == len({principal_of(agent) for agent in agents})


def test_who_is_distrusted_is_so_under_each_of_its_names() -> None:
    distrusted, other = Distrusted(), Distrusted()
    distrusted.add("default", Decision(kind="agent", id="evil:2", on=True, by="me", why="it lies", time=2.0))
    distrusted.add("default", Decision(kind="agent", id="evil:3", on=False, by="me", why="older", time=1.0))
    other.add("default", Decision(kind="agent", id="evil", on=True, by="me", why="it lies", time=1.0))
    assert distrusted.agents("default") == other.agents("default") != frozenset()


def test_keys_are_checked() -> None:
    assert Principals.of("") is None and Principals.of("self-declared") is None and signer("self-declared") is None
    for wrong in ("short", KNOWN.key_of("good")):
        with pytest.raises(ConfigError, match="of a worker is a secret"):
            Principals.of(wrong)
    with pytest.raises(ConfigError, match="no blanks and no colon"):
        KNOWN.key_of("a:b")
    assert Principals.of(SECRET) is not None


async def test_what_an_agent_sends_is_signed(broker: EmbeddedBroker, tenant: str, make_topics: Any) -> None:
    await make_topics(broker.address, tenant, "events")
    emitter = Emitter(broker.address, tenant, principal_key=KNOWN.key_of("good"))
    await emitter.start()
    for agent in ("good:1", "other"):
        assert emitter.emit(Story(tenant).session(f"s-{agent}", agent=agent)[0])
    assert await emitter.flush(120)
    await emitter.close()
    name, effects = topic(tenant, "events"), Effects()
    taken = []
    for sent in await read_to_end(broker.address, [name], 120):
        headers = dict(sent.headers)
        taken += read_events(Record(name, 0, 0, None, sent.value, headers, BASE_TIME + 10), effects, KNOWN)
    assert [each.agent for each in taken] == ["good:1"]
    assert [each.reason for each in effects.dead_letters] == ["foreign_principal"]


@for_each("checked", True, False)
@for_each("whole", True, False)
@for_each("signed", "now", "by an old secret", "not at all", "under no name")
async def test_what_is_sent_back_is_signed_by_nobody_who_did_not_sign_it(
    signed: str, whole: bool, checked: bool
) -> None:
    """The stage that made the dead letter had checked the signature, or it was as yet self-declared."""
    value = encode_record(events("evil", "good"))
    part = value if whole else encode_record(events("good"))[1:-1]
    old_key = Principals("the-old-secret-of-this-test-0123456789").key_of("evil")
    headers = {
        "now": record(value, KNOWN.key_of("evil")).headers,
        "by an old secret": record(value, old_key).headers,
        "not at all": {SIGNED_BY: b"victim 00"},
        "under no name": {SIGNED_BY: b"a:b 00"},
    }[signed]
    read = Record(EVENTS, 0, 0, None, value, headers, BASE_TIME + 10)
    to, partition, key, body, marks = record_of(
        FeedbackStage(KNOWN if checked else None), DeadLetter(read, part, "bad_field", "")
    )
    posted: Any = ConsumerRecord(to, partition, 0, 0, 0, key, body, 0, 0, len(body or b""), tuple(marks))
    letter = read_dead_letter(posted)
    assert isinstance(letter, DeadLetterRecord)
    sent = await _record(None, "default", letter, {EVENTS: 1})
    assert not isinstance(sent, str)
    made = Record(EVENTS, 0, 0, None, sent.value, dict(sent.headers), BASE_TIME + 10)
    taken = ["evil"] if whole else []  # signed, and still not by `good`
    known = signed == "now" and (whole or checked)
    assert reasons(made) == ((taken, ["foreign_principal"]) if known else ([], ["unsigned"]))


def test_a_row_made_of_records_is_signed_by_nobody() -> None:
    read = record(encode_record(events("evil")), KNOWN.key_of("evil"))
    row = record_of(FeedbackStage(KNOWN), DeadLetter(read, b'{"id": "a row"}', "row_refused", ""))
    assert SIGNED_BY not in dict(row.headers)


def test_a_worker_of_a_secured_cluster_has_to_be_told_that_agents_are_self_declared() -> None:
    settings = Settings(broker="127.0.0.1:1", kafka_security_protocol="SSL")
    with pytest.raises(ConfigError, match="one process could be three agents"):
        run_worker(settings)


def test_a_relay_signs_nothing_for_callers_that_it_cannot_tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLORE_PRINCIPAL_KEY", KNOWN.key_of("*"))
    done = CliRunner().invoke(build_app(), ["relay", "--http", "127.0.0.1:1", "--broker", "127.0.0.1:1"])
    assert done.exit_code == 1 and "give --tokens" in done.output


def test_the_command_prints_a_principal_s_key(monkeypatch: pytest.MonkeyPatch) -> None:
    app = build_app()
    register(app)
    assert "that of the workers" in CliRunner().invoke(app, ["topics", "principal", "good"]).output
    monkeypatch.setenv("FLEETLORE_PRINCIPAL_KEY", SECRET)
    assert CliRunner().invoke(app, ["topics", "principal", "good"]).output == f"{KNOWN.key_of('good')}\n"
