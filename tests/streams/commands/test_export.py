"""`fleetlore export` reads the log of a broker, or logged sessions, and writes what a trainer reads."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from msgspec.structs import replace

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.wire.stats import stable_hash, user_hash
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import DIGEST_TEXT, Judgment
from streams.stage.operators import Erasure
from tests.build import call, judgment
from tests.command import run, run_beside

WRONG, RIGHT = "SELECT nme FROM cars", "SELECT name FROM cars"


def recovery(session: str, table: str) -> Judgment:
    steps = (
        call("sql", "SHOW TABLES", "t" * 2 * DIGEST_TEXT),
        call("sql", f"{WRONG}, {table}", error="no such column: nme"),
        call("sql", f"{RIGHT}, {table}", "Beetle"),
    )
    return judgment(*steps, session=session, goal=f"Names of {table}?", task=table, events=5)


async def publish(address: str, tenant: str, sessions: list[Judgment], erased: list[str]) -> None:
    """The log as the pipeline leaves it: whole sessions, and judgments with their digests."""
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        for each in sessions:
            whole = each.trajectory
            judged = replace(each, trajectory=whole.digest())
            await producer.send_and_wait(topic(tenant, "trajectories"), b"[%b]" % whole.to_json())
            await producer.send_and_wait(topic(tenant, "judgments"), b"[%b]" % judged.to_json())
        for session in erased:
            erasure = Erasure(time=1.0, sessions=(stable_hash(session),))
            await producer.send_and_wait(topic(tenant, "erasures"), erasure.to_json(), key=erasure.key.encode())


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (folder / f"{name}.jsonl").read_bytes().splitlines()]


async def test_sessions_come_whole_from_the_log_and_erased_ones_do_not(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, tmp_path: Path
) -> None:
    await make_topics(broker.address, tenant, "judgments", "trajectories", "erasures", partitions=2)
    kept, other, erased = (recovery(each, "ships") for each in ("kept", "other", "erased"))
    other = replace(other, trajectory=replace(other.trajectory, agent="another"))
    await publish(broker.address, tenant, [kept, other, erased], ["erased"])
    out = tmp_path / "pairs"
    done = await run_beside("export", "--broker", broker.address, "--tenant", tenant, "--out", str(out))
    assert done.exit_code == 0, done.output
    pairs, sessions = rows(out, "pairs"), rows(out, "sessions")
    whole = kept.trajectory.steps[0].result  # and not the digest's first characters
    assert all(whole in [message["content"] for message in row["prompt"]] for row in pairs)
    assert [(each["session"], each["label"]) for each in sessions] == [("kept", True), ("other", True)]
    assert orjson.loads(done.output) == {"sessions": 2, "pairs": len(pairs)} and pairs


async def test_the_sessions_of_one_person_are_written_whole_and_no_others(
    broker: EmbeddedBroker, tenant: str, make_topics: Any
) -> None:
    await make_topics(broker.address, tenant, "judgments", "trajectories", "erasures", partitions=2)
    of_ann, of_bob, erased = (recovery(each, "ships") for each in ("one", "two", "three"))
    of_ann = replace(of_ann, trajectory=replace(of_ann.trajectory, user=user_hash("ann")))
    of_bob = replace(of_bob, trajectory=replace(of_bob.trajectory, user=user_hash("bob"), agent="another"))
    erased = replace(erased, trajectory=replace(erased.trajectory, user=user_hash("ann")))
    await publish(broker.address, tenant, [of_ann, of_bob, erased], ["three"])
    for option, name, expected in (("--user", "ann", of_ann), ("--agent", "another", of_bob)):
        done = await run_beside("export", "sessions", "--broker", broker.address, "--tenant", tenant, option, name)
        assert done.exit_code == 0, done.output
        assert [Judgment.from_json(line) for line in done.stdout_bytes.splitlines()] == [expected]
        assert not done.stderr
    mistyped = await run_beside("export", "sessions", "--broker", broker.address, "--tenant", tenant, "--user", "Ann")
    assert mistyped.exit_code == 0 and not mistyped.stdout
    assert "No judged session" in mistyped.stderr and "is its name right?" in mistyped.stderr


def test_it_is_asked_whose_sessions_are_meant() -> None:
    done = run("export", "sessions", "--broker", "127.0.0.1:1")
    assert done.exit_code == 1 and "give --session, --agent or both, or --user" in done.output


@pytest.mark.parametrize("command", [("export", "sessions"), ("erase", "--yes")], ids=" ".join)
@pytest.mark.parametrize("option", ["--session", "--agent", "--user", "--tenant"])
def test_an_option_without_a_name_widens_no_scope(command: tuple[str, ...], option: str) -> None:
    """So a script gives it whose variable is not set."""
    others = [each for each in ("--tenant", "--agent") if each != option]
    named = [text for each in others for text in (each, "a")]
    done = run(*command, "--broker", "127.0.0.1:1", *named, option, "")
    assert done.exit_code > 0 and ("this is no name" in done.output or "tenant '' must be" in done.output), done.output


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> list[Judgment]:
        return []

    monkeypatch.setattr("streams.training.window.judged_sessions", nothing)
    (tmp_path / "file").write_text("")
    done = run("export", "--out", str(tmp_path / "file"))
    assert done.exit_code == 1 and "cannot be written" in done.output
