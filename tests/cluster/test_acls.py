"""The access lists that are printed: each role does its work with them, and no more."""

import asyncio
import re
import shlex
import sys
from pathlib import Path

import orjson
import pytest
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType
from confluent_kafka.admin import ResourceType as Kind
from typer.testing import CliRunner

from benchmarks.replay import read_knowledge
from fleetlore.adapters.signatures import create_signing_key
from fleetlore.agent.fleet import Fleet
from fleetlore.cli.app import build_app
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka.client import connected, make_producer
from fleetlore.kafka.emitter import Emitter
from fleetlore.kafka.read import read_dead_letters, read_to_end
from fleetlore.wire.events import Event
from fleetlore.wire.principals import Principals
from fleetlore.wire.topics import NAMES, topic
from sinks.milvus import MilvusStore
from sinks.topics import Allowed, TopicAdmin
from streams.commands.topics import register
from streams.embedded.broker import free_port
from streams.offline.operator_word import wait_drained
from tests.cluster.secured import Secured
from tests.streams.broker_pipeline import StartWorker
from tests.streams.conftest import end, guarded, wait_ready, worker_environ
from tests.streams.log_pipeline import Call, Story

TENANTS = ("a", "ab", "b")


def printed(*arguments: str) -> str:
    app = build_app()
    register(app)
    given = [argument for tenant in TENANTS for argument in ("--tenant", tenant)]
    done = CliRunner().invoke(app, ["topics", "acls", *given, *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def bindings(command: str) -> list[AclBinding]:
    """The ACLs that Kafka's own tool would create from a line."""
    tool, *options = shlex.split(command)
    assert tool == "kafka-acls.sh"
    options.remove("--add")
    given: dict[str, list[str]] = {}
    for name, value in zip(options[::2], options[1::2], strict=True):
        given.setdefault(name, []).append(value)
    (principal,), (pattern,) = given["--allow-principal"], given["--resource-pattern-type"]
    return [
        AclBinding(
            Kind[kind.upper()],
            name,
            ResourcePatternType[pattern.upper()],
            principal,
            "*",
            AclOperation[re.sub("(?<=[a-z])(?=[A-Z])", "_", operation).upper()],
            AclPermissionType.ALLOW,
        )
        for kind in ("topic", "group")
        for name in given.get(f"--{kind}", ())
        for operation in given["--operation"]
    ]


@pytest.fixture(scope="module")
def granted(secured: Secured) -> Secured:
    admin = AdminClient({"bootstrap.servers": secured.cluster.inside, "log_level": 0})
    for command in printed().splitlines():
        for done in admin.create_acls(bindings(command)).values():
            done.result(30)
    return secured


def of(secured: Secured, role: str, **changes: object) -> Settings:
    return secured.scram(f"fleetlore-{role}", "a", tenants=TENANTS, **changes)


async def test_an_operator_makes_the_topics_and_changes_them(granted: Secured) -> None:
    settings = of(granted, "operator")
    async with TopicAdmin(settings).connected() as admin:
        await admin.create_missing()
    async with TopicAdmin(settings.with_(partitions=5)).connected() as admin:
        done = await admin.apply(await admin.compare(Allowed(grow_keyed=False)))
        assert {each.state for each in done if each.topic.endswith("dead-letters")} <= {"done"}
    assert [each async for each in read_dead_letters(settings.cluster, "a", 20.0)] == []


async def write(settings: Settings, name: str) -> None:
    async with connected(make_producer(settings.cluster, request_timeout_ms=3000)) as producer:
        await producer.send_and_wait(name, b"{}", key=b"k", partition=0)


async def may_write(settings: Settings, name: str) -> bool:
    try:
        await write(settings, name)
    except (TopicAuthorizationFailedError, KafkaError) as error:
        assert "Authorization" in type(error).__name__, repr(error)
        return False
    return True


async def may_read(settings: Settings, name: str) -> bool:
    """The records are written by `root`. A topic without the right to describe it looks absent."""
    try:
        return len(await read_to_end(settings.cluster, [name], 120)) > 0
    except BrokerUnavailable as error:
        assert "TopicAuthorizationFailed" in str(error)
        return False


@pytest.fixture(scope="module")
def filled(granted: Secured) -> Secured:
    """Something to read in every topic of every tenant."""

    async def fill() -> None:
        root = granted.scram("root", "a", tenants=TENANTS)
        async with TopicAdmin(root).connected() as admin:
            await admin.create_missing()
        async with connected(make_producer(root.cluster)) as producer:
            for name in (topic(tenant, name) for tenant in TENANTS for name in sorted(NAMES)):
                await producer.send_and_wait(name, b"{}", key=b"k", partition=0)

    asyncio.run(fill())
    return granted


AGENT_WRITES = {"events", "adapters.acks"}
AGENT_READS = {"patterns", "items", "decisions", "adapters"}
MAY = {
    "agent-a": (AGENT_WRITES, AGENT_READS),
    "trainer": ({"adapters"}, {"trajectories", "judgments", "adapters.acks", "adapters", "erasures"}),
    "worker": (
        {"observations", "patterns", "trajectories", "judgments", "candidates", "items", "dead-letters"},
        # A worker reads its own topics for agents to find out whether a former owner has overwritten a record.
        {
            *("events", "feedback", "observations", "patterns", "trajectories", "judgments", "candidates", "items"),
            *("erasures", "decisions"),
        },
    ),
    "reviewer-a": ({"feedback"}, set()),
    "author-a": ({*AGENT_WRITES, "decisions", "decisions.history"}, AGENT_READS),
    "nobody": (set(), set()),
}


@pytest.mark.parametrize("role", MAY)
async def test_a_role_writes_and_reads_its_own_and_no_more(filled: Secured, role: str) -> None:
    writes, reads = MAY[role]
    user = filled.scram(role if role == "nobody" else f"fleetlore-{role}", "a", tenants=TENANTS)
    for name in sorted(NAMES):
        assert await may_write(user, topic("a", name)) is (name in writes), f"{role} writes {name}"
        assert await may_read(user, topic("a", name)) is (name in reads), f"{role} reads {name}"


@pytest.mark.parametrize("other", ["ab", "b"])
async def test_an_agent_touches_nothing_of_another_tenant(filled: Secured, other: str) -> None:
    user = of(filled, "agent-a")
    for name in sorted(NAMES):
        assert not await may_write(user, topic(other, name)), name
        assert not await may_read(user, topic(other, name)), name


async def test_the_fleet_works_with_these_lists(
    granted: Secured, milvus: str, tmp_path: Path, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = of(granted, "worker", milvus=milvus, metrics_port=free_port())
    running = await asyncio.to_thread(start_worker, worker)
    key = Principals(worker.principal_key).key_of("agent")
    public_key = create_signing_key(str(tmp_path / "signing.pem")).public_base64
    agent = of(granted, "agent-a", public_key=public_key, principal_key=key)
    for name, value in agent.to_env().items():
        if value and name not in ("FLEETLORE_TENANTS",):
            monkeypatch.setenv(name, value)
    async with Fleet("agent", tenant="a", ready_seconds=120) as fleet:
        async with fleet.session("find a folder") as session:
            async with session.action("ls", {"path": "/nowhere"}) as action:
                action.fail("FileNotFoundError", "no such folder")
            session.fail()
        assert await fleet.flush(120)
        await wait_drained(of(granted, "operator", milvus=milvus), "a", 60.0)
        async with asyncio.timeout(120):
            while not fleet.replica.index.patterns:
                await asyncio.sleep(0.05)
    running.terminate()
    assert await asyncio.to_thread(running.wait, 120) == 0


async def test_a_principal_with_a_login_and_a_key_of_its_own_takes_no_session_of_others(
    granted: Secured, milvus: str, start_worker: StartWorker
) -> None:
    worker, ids = of(granted, "worker", milvus=milvus, metrics_port=free_port()), ["kept-0", "kept-1", "kept-2"]
    failed: Call = ("deploy", {"mode": "fast", "v": 1}, "", "unknown mode 'fast'")
    worked: Call = ("deploy", {"mode": "quick", "v": 1}, "done", None)
    story, principals = Story("a"), Principals(worker.principal_key)

    async def emit(principal: str, *sessions: list[Event]) -> None:
        key = principals.key_of(principal)
        emitter = Emitter(of(granted, "agent-a", principal_key=key).cluster, "a", principal_key=key)
        await emitter.start()
        assert all(emitter.emit(event) for session in sessions for event in session)
        assert await emitter.flush(120)
        await emitter.close()

    running = await asyncio.to_thread(start_worker, worker)
    for number, id in enumerate(ids):
        await emit(f"good{number}", story.session(id, failed, worked, agent=f"good{number}", task=f"task-{number}"))
    taken = [story.session(id, outcome="failure", agent="evil", start=1_577_836_800.0) for id in ids]
    forged = story.session("forged", failed, agent="good0")
    await emit("evil", *taken, forged)
    await wait_drained(of(granted, "operator", milvus=milvus), "a", 60.0)
    running.terminate()
    assert await asyncio.to_thread(running.wait, 120) == 0
    async with MilvusStore.from_settings(worker) as store:
        judged = [each for each in (await read_knowledge(store, "a")).judgments if each[0] in (*ids, "forged")]
        items = [orjson.loads(row["body"]) async for row in store.rows("items", "a", "body", tool="deploy")]
    assert sorted(judged) == sorted([each for id in ids for each in ((id, "success", 4), (id, "failure", 2))])
    assert [each["agents"] for each in items] == [3]
    letters = [each async for each in read_dead_letters(of(granted, "operator").cluster, "a", 20.0)]
    assert {each.reason for each in letters if b"forged" in each.value} == {"foreign_principal"}


async def test_a_worker_that_may_not_join_its_group_ends_and_says_so(
    granted: Secured, milvus: str, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = of(granted, "worker", milvus=milvus, group="another", metrics_port=free_port())
    command = (sys.executable, "-m", "fleetlore.cli.main", "worker")
    running = guarded(*command, environ=worker_environ(settings))
    try:
        assert await asyncio.to_thread(running.wait, 120) == 1
    finally:
        end(running)
    assert "GroupAuthorizationFailed" in capfd.readouterr().err


@pytest.mark.slow
async def test_the_trainer_becomes_ready_with_its_list(
    filled: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = create_signing_key(str(tmp_path / "signing.pem"))
    files = {"signing_key": str(tmp_path / "signing.pem"), "adapters_dir": str(tmp_path / "adapters")}
    settings = of(filled, "trainer", metrics_port=free_port(), public_key=key.public_base64, **files)
    settings = settings.with_(tenants=("a",))
    # It is of the lowest priority, and imports for seconds of CPU.
    monkeypatch.setattr("tests.streams.conftest.START_SECONDS", 400.0)
    training = guarded(sys.executable, "-m", "fleetlore.cli.main", "trainer", environ=worker_environ(settings))
    await asyncio.to_thread(wait_ready, f"http://127.0.0.1:{settings.metrics_port}", training)
    await asyncio.to_thread(end, training)
    assert training.returncode == 0


async def test_an_agent_of_another_tenants_topic_says_so_once(
    granted: Secured, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in of(granted, "agent-a").to_env().items():
        if value and name != "FLEETLORE_TENANTS":
            monkeypatch.setenv(name, value)
    async with Fleet("agent", tenant="ab", ready_seconds=0) as fleet:
        async with fleet.session("find a folder"):
            pass
        await asyncio.sleep(5)
    said = [record.getMessage() for record in caplog.records if "events" in record.getMessage()]
    assert len([each for each in said if "Authorization" in each]) == 1, said
