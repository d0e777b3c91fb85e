"""Lore goes from one tenant to another as a file: all of it, merged by id, or nothing at all."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.replay import read_knowledge
from benchmarks.rollouts import rollouts
from fleetlore.adapters.signatures import create_signing_key
from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.events import Event
from fleetlore.wire.lore import DECISIONS, HISTORY, Decision, Hint, MemoryItem
from fleetlore.wire.principals import session_key
from fleetlore.wire.stats import stable_hash
from sinks.collections import COLLECTIONS
from streams.offline.lore_file import LoreFile, deliver, known_in, rows_of, skills_of, write_skills, written
from streams.offline.operator_word import known_to
from streams.stage.operators import ERASURES, Erased, Erasure
from tests.build import memory_item
from tests.streams.log_pipeline import BASE_TIME, LogPipeline, Story, learned

LORE = [each for each in COLLECTIONS if each.name != "judgments"]
TENANT = "acme"


def random_sessions(seed: int, count: int = 24) -> list[list[Event]]:
    """Sessions of random agents in the tool world, an hour apart."""
    found = []
    for number, run in enumerate(rollouts(seed, count)):
        calls = [(each["tool"], each["arguments"], each["result"], each["error_message"]) for each in run["steps"]]
        start = BASE_TIME + 3_600 * number
        story = Story(TENANT)
        found.append(story.session(f"s{seed}-{number}", *calls, agent=run["agent"], task=run["task"], start=start))
    return found


async def exported(pipeline: LogPipeline, path: Path, records: Any = (), key: Any = None) -> Path:
    lines = [
        line async for line in written(pipeline.tenant, 1.0, rows_of(pipeline.store, pipeline.tenant, records), key)
    ]
    path.write_bytes(b"".join(lines))
    return path


async def imported(pipeline: LogPipeline, path: Path) -> LogPipeline:
    await deliver(LoreFile(path, pipeline.tenant, None), {}, pipeline.producer.deliver, Erased())
    await pipeline.drain()
    assert await pipeline.dead_letters() == []
    return pipeline


async def state_hash(pipeline: LogPipeline) -> str:
    return (await read_knowledge(pipeline.store, pipeline.tenant, LORE)).state_hash


async def bodies(pipeline: LogPipeline) -> list[Any]:
    found = []
    for collection in LORE:
        found += [{**body, "tenant": ""} for body in await pipeline.bodies(collection.name)]
    return sorted(found, key=orjson.dumps)


@pytest.mark.parametrize("seed", range(2))
async def test_an_import_merges_with_what_the_tenant_learned_itself_and_gives_an_empty_one_the_same(
    tmp_path: Path, seed: int
) -> None:
    sessions = random_sessions(seed)
    split = Random(seed).randrange(1, len(sessions))
    first, second, empty = await learned(sessions[:split]), await learned(sessions[split:]), LogPipeline(TENANT)
    file = await exported(first, tmp_path / "lore.jsonl")
    for _ in range(2):  # an import that is repeated changes nothing
        await imported(empty, file)
        assert await state_hash(empty) == await state_hash(first) and states(empty) == states(first)
    await imported(second, file)
    assert await state_hash(second) == await state_hash(await learned(sessions))


def states(pipeline: LogPipeline) -> list[tuple[str, str]]:
    rows = [row for name in ("patterns", "items") for row in pipeline.store.collections[name].values()]
    return sorted((row["id"], row["state"]) for row in rows)


async def test_lore_of_one_tenant_is_the_lore_of_another(tmp_path: Path) -> None:
    source = await learned(Story(TENANT).fleet())
    file = await exported(source, tmp_path / "lore.jsonl")
    target = await imported(LogPipeline("other"), file)
    assert await bodies(target) == await bodies(source)
    assert {body["tenant"] for body in await target.bodies("items")} == {"other"}
    # What the second tenant meets itself merges by the same ids.
    met = await learned(Story("other").fleet(), "other")
    assert await bodies(await imported(met, file)) == await bodies(source)


async def test_what_a_target_has_erased_or_distrusts_stays_out(tmp_path: Path) -> None:
    source = await learned(Story(TENANT).fleet())
    file = await exported(source, tmp_path / "lore.jsonl")
    never = await learned([each for each in Story(TENANT).fleet() if each[0].session != "good-1"])
    target = LogPipeline(TENANT)
    erasure = Erasure(time=1.0, sessions=(stable_hash(session_key("a1", "good-1")),))
    target.log.append(f"fleetlore.{TENANT}.{ERASURES}", erasure.to_json(), key=erasure.key.encode())
    target.start()
    await imported(target, file)
    assert await bodies(target) == await bodies(never)
    assert await known_to(target.store, TENANT, "a2"), "provenance is lost"


async def test_decisions_go_along_and_an_older_one_does_not_come_back(tmp_path: Path) -> None:
    source = await learned(Story(TENANT).fleet())
    hint = Hint(text="Use the view.", author="kim", written=9.0, before=("cars",))
    decision = Decision(kind="hint", id="h1", on=False, by="kim", why="wrong", time=10.0, hint=hint)
    erasure = Erasure(time=10.0, sessions=(7,))
    file = await exported(source, tmp_path / "lore.jsonl", [(DECISIONS, decision), (ERASURES, erasure)])
    target = LogPipeline(TENANT)
    read = LoreFile(file, TENANT, None)
    send, erased = target.producer.deliver, Erased()
    await deliver(read, {(DECISIONS, decision.key): 11.0}, send, erased)
    assert target.log.read_all(f"fleetlore.{TENANT}.{DECISIONS}") == []
    assert [each.value for each in target.log.read_all(f"fleetlore.{TENANT}.{ERASURES}")] == [erasure.to_json()]
    erased.take(TENANT, Erasure(time=11.0, agent=stable_hash("kim"), before=11.0).to_json())
    await deliver(read, {}, send, erased)
    assert target.log.read_all(f"fleetlore.{TENANT}.{DECISIONS}") == [], "its author was erased"
    await deliver(read, {(DECISIONS, decision.key): 9.0}, send, Erased())
    for name, value in ((DECISIONS, decision.to_json()), (HISTORY, b"[%b]" % decision.to_json())):
        assert [each.value for each in target.log.read_all(f"fleetlore.{TENANT}.{name}")] == [value]


async def test_a_dry_run_says_what_is_known(tmp_path: Path) -> None:
    source = await learned(Story(TENANT).fleet())
    decision, erasure = (
        Decision(kind="item", id="i1", on=True, by="kim", why="", time=10.0),
        Erasure(time=10.0, agent=7),
    )
    file = await exported(source, tmp_path / "lore.jsonl", [(DECISIONS, decision), (ERASURES, erasure)])
    read, known = LoreFile(file, TENANT, None), {(DECISIONS, decision.key): 10.0, (ERASURES, erasure.key): 11.0}
    assert await known_in(source.store, TENANT, read, known) == read.counts
    assert (await known_in(source.store, TENANT, read, {(DECISIONS, decision.key): 9.0}))[DECISIONS] == 0
    assert not +(await known_in(LogPipeline("other").store, "other", read, {}))


async def test_a_file_is_believed_if_a_trusted_key_signed_it(tmp_path: Path) -> None:
    ours, other = create_signing_key(tmp_path / "a" / "key"), create_signing_key(tmp_path / "b" / "key")
    source = await learned(Story(TENANT).fleet())
    signed = await exported(source, tmp_path / "signed", key=ours)
    plain = await exported(source, tmp_path / "plain")
    assert LoreFile(signed, TENANT, f"{other.public_base64},{ours.public_base64}").signer == ours.key_id
    for file, keys in ((signed, other.public_base64), (plain, ours.public_base64)):
        with pytest.raises(ConfigError, match="Nothing was imported"):
            LoreFile(file, TENANT, keys)
    with pytest.raises(ConfigError, match="--unsigned"):
        LoreFile(plain, TENANT, ours.public_base64)
    assert LoreFile(plain, TENANT, None).signer == ""


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    decided = Decision(kind="agent", id="ann", on=True, by="kim", why="lies", time=10.0)
    records = [(DECISIONS, decided), (ERASURES, Erasure(time=10.0, agent=7, before=10.0))]
    return await exported(await learned(Story(TENANT).fleet()), tmp_path / "lore.jsonl", records)


def refused(file: Path, content: bytes, why: str, name: str = "") -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        LoreFile(file, TENANT, None)
    assert re.search(why, str(error.value)), name


async def test_a_part_of_a_file_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    lines = whole.splitlines(keepends=True)
    parts = [b"".join(lines[:number]) for number in range(len(lines))]
    parts += [whole[:length] for length in range(0, len(whole) - 1, 997)]
    parts += [b"".join(lines[:3] + lines[4:]), b"".join([*lines[:-1], lines[3], lines[-1]]), whole + lines[2]]
    for part in parts:
        refused(file, part, "Nothing was imported")


async def test_a_file_of_another_release_is_refused(file: Path) -> None:
    header, *lines = file.read_bytes().splitlines(keepends=True)
    for name in ("format", "patterns", "items"):
        refused(file, orjson.dumps(orjson.loads(header) | {name: "0"}) + b"\n" + b"".join(lines), "another release")


def forged(kind: str, change: Callable[[dict[str, Any]], None]) -> Callable[[bytes], bytes]:
    def make(whole: bytes) -> bytes:
        header, *lines, _ = whole.splitlines(keepends=True)
        changed = []
        for line in lines:
            row = orjson.loads(line)
            if row["kind"] == kind:
                change(row)
            changed.append(orjson.dumps(row) + b"\n")
        return b"".join([header, *changed])

    return make


def _first(row: dict[str, Any], **values: int) -> None:
    places = {"session": 0, "agent": 1, "calls": 2, "failures": 3, "ended": 4}
    for name, value in values.items():
        row["state"]["sessions"][0][places[name]] = value


def _dated(field: str, time: float, row: dict[str, Any]) -> None:
    row["state" if row["kind"] == "items" else "body"][field] = time


HOSTILE = {
    "more failures than calls": forged("patterns", lambda row: _first(row, calls=1, failures=5)),
    "negative": forged("patterns", lambda row: _first(row, calls=-1)),
    "too large": forged("patterns", lambda row: _first(row, calls=2**60)),
    "a list": forged("patterns", lambda row: row.update(state=[])),
    "no state": forged("items", lambda row: row.pop("state")),
    "another id": forged("patterns", lambda row: row.update(id="b" * 32)),
    "another id of an item": forged("items", lambda row: row.update(id="b" * 32)),
    "a path as id": forged("items", lambda row: row.update(id="../../x")),
    "no room": forged("patterns", lambda row: row["state"].update(k={"hours": 0})),
    "an unknown field": forged("patterns", lambda row: row["state"].update(more=1)),
    "another kind": forged("items", lambda row: row.update(kind="adapters")),
    "a topic": forged("items", lambda row: row.update(kind="events")),
    "a long text": forged("items", lambda row: row["state"]["examples"]["success"][0].update(content="x" * 70_000)),
    "a far time": forged("items", lambda row: row["state"]["contributors"][0][1].__setitem__(3, 1e308)),
    # In the year 2286, and for ever: no later decision could undo it.
    **{
        f"a coming time: {kind}, {field} {time}": forged(kind, partial(_dated, field, time))
        for kind, field in (("decisions", "time"), ("erasures", "time"), ("erasures", "before"), ("items", "last_seen"))
        for time in (1e10, 1e300)
    },
    "a coming call": forged("patterns", lambda row: row["state"].update(callers=[[7, 1e10]])),
    "too many callers": forged("patterns", lambda row: row["state"].update(callers=[[n, 1.0] for n in range(3)])),
    "a coming hour": forged("patterns", lambda row: row["state"].get("hours", [[0]])[0].__setitem__(0, 2**31 - 1)),
}


async def test_a_hostile_file_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    for name, forge in HOSTILE.items():
        lines = forge(whole)
        end = {"lines": lines.count(b"\n"), "sha256": sha256(lines).hexdigest(), "schema": 1}
        refused(file, lines + orjson.dumps(end) + b"\n", r"line \d+ cannot be read.*Nothing was imported", name)


async def test_a_line_without_end_is_not_read_into_memory(file: Path) -> None:
    refused(file, file.read_bytes().splitlines(keepends=True)[0] + b"x" * 2**20, "a line is longer")


SETTINGS = Settings()


async def index() -> LoreIndex:
    pipeline, found = await learned(Story("acme").fleet()), LoreIndex()
    for row in pipeline.store.collections["items"].values():
        if row["body"]:
            found.put_item(MemoryItem.from_json(row["body"]))
    return found


async def test_a_skill_holds_the_hints_that_the_gate_lets_pass(tmp_path: Path) -> None:
    lore = await index()
    for item in list(lore.items.values()):
        lore.put_item(replace(item, id=f"{item.id}-beside-another-word"))
    skills = skills_of(lore, SETTINGS, 0.0)
    assert all(len(lines) == len(set(lines)) for lines in skills.values())
    names = write_skills(tmp_path, "default", skills)
    assert names, [each.title for each in lore.items.values()]
    for name in names:
        text = (tmp_path / name / "SKILL.md").read_text()
        front = re.match(r'---\nname: ([a-z0-9-]{1,64})\ndescription: "[^\n]{1,1020}"\n---\n', text)
        assert front and front[1] == name
    whole = "\n".join((tmp_path / name / "SKILL.md").read_text() for name in names)
    assert "pip install numpy" in whole
    for item in list(lore.items.values()):
        lore.put_item(replace(item, agents=1))
    assert skills_of(lore, SETTINGS, 0.0) == {}, "a hint of one agent alone"


def test_a_line_says_beside_which_word_it_holds() -> None:
    lore, title = LoreIndex(), "Bash: no script — instead beside `npm`: `test`"
    lore.put_item(memory_item("i1", tool="Bash", was=("tests",), now=("test",), title=title, support=9, agents=9))
    lines = ["In a call with `npm`: Use `test` instead of `tests` in Bash."]
    assert skills_of(lore, SETTINGS, 0.0) == {"the tool Bash": lines}


async def test_persons_hints_come_first_with_their_author(tmp_path: Path) -> None:
    lore = await index()
    for id, on, until in (("h1", False, 0.0), ("h2", True, 0.0), ("h3", False, 5.0)):
        hint = Hint(
            text=f"Ask before you drop {id} <b>.", author="kim", written=1.0, tool="sql", start=True, until=until
        )
        lore.put_hint(Decision(kind="hint", id=id, on=on, by="kim", why="", time=1.0, hint=hint))
    found = skills_of(lore, SETTINGS, 10.0)["the tool sql"]
    assert found[0] == "at the start: Ask before you drop h1 <b>. (written by kim)"
    assert not any("h2" in line or "h3" in line for line in found)


def test_a_hostile_name_stays_in_its_folder(tmp_path: Path) -> None:
    names = write_skills(
        tmp_path / "out", "default", {"the tool ../../etc/\n---\nname: x": ["a"], "the tool ": ["b"], "x" * 500: ["c"]}
    )
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == sorted(names)
    assert all(len(name) <= 64 and re.fullmatch(r"[a-z0-9-]+", name) for name in names)
    for name in names:
        assert (tmp_path / "out" / name / "SKILL.md").read_text().count("\n---\n") == 1


@given(st.text(max_size=60), st.sampled_from(["</skill><system>", "![x](http://e)", "\u202e", "&lt;system>"]))
def test_no_name_opens_a_tag_or_a_link_in_a_skill(words: str, mark: str) -> None:
    with TemporaryDirectory() as folder:
        (name,) = write_skills(Path(folder), "default", {f"the tool {words}{mark}": ["a"]})
        text = (Path(folder) / name / "SKILL.md").read_text()
    assert not re.search(r"</?[A-Za-z!|]|\]\s*[(:\[]|\u202e|&lt", text)


def test_a_skill_that_persons_took_back_goes_and_files_of_others_stay(tmp_path: Path) -> None:
    write_skills(tmp_path, "default", {"the tool sql": ["a"], "the tool sh": ["b"]})
    (other,) = write_skills(tmp_path, "shop", {"the tool sql": ["c"]})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "SKILL.md").write_text("my own")
    (left,) = write_skills(tmp_path, "default", {"the tool sql": ["a"]})
    assert {each.name for each in tmp_path.iterdir()} == {left, other, "mine"} and left != other


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_skills(tmp_path / "file", "default", {"the tool x": ["a"]})
