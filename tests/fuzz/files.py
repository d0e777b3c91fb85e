"""Files of others: logs to import in five forms, lore, adapters with their weights, tokens, keys and settings."""

import asyncio
import io
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import orjson

from fleetlore.adapters.follower import EpochFile
from fleetlore.adapters.signatures import SigningKey, public_keys
from fleetlore.calls.model import CallModel
from fleetlore.cluster import STACK_FILE
from fleetlore.config import Settings, variables
from fleetlore.errors import AdapterRefused, ConfigError
from fleetlore.lora.adapter import CONFIG, WEIGHTS, Base, check_lora, read_lora
from fleetlore.relay.callers import read_tokens
from fleetlore.testing import FakeClock
from fleetlore.transcripts.read import FORMS, files_of, read_files, read_sessions
from fleetlore.transcripts.session import timed_events
from fleetlore.wire.adapter_manifest import LanguageModelManifest
from fleetlore.wire.lore import DECISIONS, Decision
from fleetlore.wire.topics import topic
from models.memory.bottom_k import SessionCounts
from models.memory.candidate import Candidate
from models.memory.item_state import ItemState
from models.memory.pattern_state import PatternState, Subject
from sinks.collections import MAX_FIELD_BYTES
from sinks.metrics import Metrics
from streams.offline.lore_file import LoreFile, written
from streams.offline.memory_pipeline import MemoryStore
from streams.stage.base import Record
from streams.stages.s2_patterns import PatternsStage
from streams.stages.s4_items import ItemsStage
from tests.fleetlore.transcripts.test_read import WRITERS
from tests.fuzz.boundary import Boundary
from tests.fuzz.odd import any_bytes, chance, json_of, mutated, text
from tests.fuzz.worker import Worker
from tests.random_adapters import OTHER, random_call_model, version_of

_NOW = 1_700_000_000.0  # before any real clock: a file of the future is refused


class Given(NamedTuple):
    """Files by name, in one folder, and what is to read them."""

    reader: str
    files: dict[str, bytes]


def size(given: Given) -> int:
    return sum(map(len, given.files.values()))


@cache
def _logs() -> dict[str, dict[str, bytes]]:
    found = {}
    for form, write in WRITERS.items():
        with TemporaryDirectory() as folder:
            write(Path(folder))
            found[form] = {each.name: each.read_bytes() for each in Path(folder).iterdir()}
    return found


def _odd_file(random: Random, data: bytes) -> bytes:
    """JSON, lines of JSON or an archive of it with odd values, or with odd bytes."""
    if data[:2] == b"PK":
        packed = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
            for name in old.namelist():
                new.writestr(name, _odd_json(random, old.read(name)))
        return mutated(random, packed.getvalue()) if chance(random, 3) else packed.getvalue()
    try:
        return _odd_json(random, data)
    except ValueError:
        return b"\n".join(_odd_line(random, line) for line in data.split(b"\n"))


def _odd_json(random: Random, data: bytes) -> bytes:
    valid = orjson.loads(data)
    return any_bytes(random, lambda random: json_of(random, valid))


def _odd_line(random: Random, line: bytes) -> bytes:
    try:
        return _odd_json(random, line)
    except ValueError:
        return mutated(random, line)


def make_log(random: Random) -> Given:
    form = random.choice(list(_logs()))
    files = {name: _odd_file(random, data) for name, data in _logs()[form].items()}
    return Given(form if chance(random, 2) else "any", files)


@cache
def _whole(form: Any) -> tuple[str, bytes, set[str]]:
    """A good log of a form: its name, its bytes and its sessions."""
    name = next(name for name in _logs()[form] if name != "other.json")
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"whole-{name}"
        path.write_bytes(_logs()[form][name])
        sessions = {each.session for each in read_files(form, [path]) if each is not None}
    assert sessions
    return path.name, _logs()[form][name], sessions


async def check_logs(given: Sequence[Given]) -> Counter[str]:
    """Every log is read, or refused as a whole or in part, and costs no log beside it; a worker takes the events."""
    found, worker = Counter[str](), Worker()
    with TemporaryDirectory() as folder:
        for number, each in enumerate(given):
            path = Path(folder) / str(number)
            path.mkdir()
            for name, data in each.files.items():
                (path / name).write_bytes(data)
            try:
                if each.reader == "any":
                    sessions: list[Any] = list(read_sessions(path))
                else:
                    form: Any = each.reader
                    _, endings = FORMS[form]
                    name, data, whole = _whole(form)
                    (path / name).write_bytes(data)
                    sessions = list(read_files(form, files_of([path], endings)))
                    assert whole <= {session.session for session in sessions if session is not None}
            except ConfigError as error:
                assert str(error)
                found["refused"] += 1
                continue
            read = [session for session in sessions if session is not None]
            for session in read:
                for event in timed_events(session, "default", _NOW):
                    worker.emit(event)
            is_read = len(read) > (0 if each.reader == "any" else len(whole))
            found["taken" if is_read else "nothing to read"] += 1
    worker.read()
    return found


@cache
def _adapters() -> dict[str, bytes]:
    return {"calls": random_call_model(1), "llm": version_of(LanguageModelManifest, 1, "default")[0]}


_LORA = {
    "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"],
    "bias": "none", "init_lora_weights": True, "use_rslora": False,
}  # fmt: skip
_STACK = {"broker": "127.0.0.1:1", "milvus": "http://127.0.0.1:2", "public_key": "", "partitions": 4, "pid": 1}


def make_setting(random: Random) -> Given:
    """An adapter, or a file that an operator or a stack wrote."""
    reader = random.choice((*_adapters(), "lora", "environment", "stack", "tokens", "key", "epochs", "public"))
    if reader in _adapters():
        return Given(reader, {reader: _odd_weights(random, _adapters()[reader])})
    match reader:
        case "lora":
            return Given(reader, {CONFIG: json_of(random, _LORA), WEIGHTS: _odd_weights(random, _adapters()["llm"])})
        case "environment":
            names = [name if not chance(random, 20) else f"{name}_FILE" for name in variables()]
            chosen = {random.choice(names): text(random).encode("utf-8", "replace") for _ in range(random.randrange(4))}
            numbers = (b"0", b"-1", b"nan", b"inf", b"1e999", b"9" * 5_000, "٣".encode(), b"1_0", b" 1 ")
            return Given(reader, {name: random.choice((value, *numbers)) for name, value in chosen.items()})
        case "stack":
            return Given(reader, {STACK_FILE: any_bytes(random, lambda random: json_of(random, _STACK))})
        case "tokens":
            lines = [f"{'t' * random.randrange(14, 20)} {text(random)} {text(random)}" for _ in range(3)]
            return Given(reader, {reader: "\n".join(lines).encode("utf-8", "surrogatepass")})
        case "key":
            return Given(reader, {reader: mutated(random, OTHER.to_pem())})
        case "epochs":
            epochs = any_bytes(random, lambda random: json_of(random, {"calls/stable": "{}"}))
            return Given(reader, {"default.epochs.json": epochs})
    return Given(reader, {reader: mutated(random, OTHER.public_base64.encode())})


def _odd_weights(random: Random, weights: bytes) -> bytes:
    """A file whose header is odd and whose data fits it as before, or with odd bytes."""
    size_of_header = int.from_bytes(weights[:8], "little")
    if chance(random, 2) or size_of_header > len(weights):
        return mutated(random, weights)
    header = json_of(random, orjson.loads(weights[8 : 8 + size_of_header]))
    return len(header).to_bytes(8, "little") + header + weights[8 + size_of_header :]


def _read(given: Given, folder: Path) -> None:
    data = next(iter(given.files.values()), b"")
    match given.reader:
        case "calls":
            CallModel.from_bytes(data)
        case "llm":
            check_lora(data, version_of(LanguageModelManifest, 1, "default")[1])
        case "lora":
            read_lora(folder, Base("a" * 64, {}))
        case "environment":
            Settings.from_env({name: value.decode("utf-8", "replace") for name, value in given.files.items()})
        case "stack":
            Settings.from_data_dir(folder)
        case "tokens":
            read_tokens(folder / "tokens")
        case "key":
            SigningKey.from_pem(data)
        case "epochs":
            EpochFile(str(folder), "default").load()
        case "public":
            public_keys(data.decode("utf-8", "replace"))


async def check_settings(given: Sequence[Given]) -> Counter[str]:
    """Every file is taken, or refused with a text that says why."""
    found: Counter[str] = Counter()
    with TemporaryDirectory() as root:
        for number, each in enumerate(given):
            folder = Path(root) / str(number)
            folder.mkdir()
            if each.reader != "environment":
                for name, data in each.files.items():
                    (folder / name).write_bytes(data)
            try:
                _read(each, folder)
            except AdapterRefused as error:
                assert error.reason and error.detail
                found[error.reason] += 1
            except ConfigError as error:
                assert str(error)
                found["refused"] += 1
            except ValueError as error:
                # The call model's own refusal; its holder makes an `AdapterRefused` of it.
                assert each.reader == "calls" and str(error), f"{each.reader}: {error!r}"
                found["malformed"] += 1
            else:
                found["taken"] += 1
    return found


@cache
def _lore() -> tuple[bytes, ...]:
    """The lines of an export: a tool, a failure with a code, an item of two agents, and a decision."""
    subjects = Subject("a" * 32, "tool", "sql"), Subject("b" * 32, "class", "sql", "E", "no")
    states = [PatternState(each) for each in subjects]
    for state in states:
        for session in range(3):
            state.add(session, SessionCounts(session, 2, 1, 1), _NOW, _NOW + 1)
    item = ItemState()
    for session in ("s1", "s2"):
        made: Any = {"item_id": f"item{'c' * 28}", "tenant": "t", "kind": "recovery", "side": "success", "seen": _NOW}
        shown: Any = {"title": "x", "content": "y", "was": ("a",), "now": ("b",)}
        item.merge(Candidate(session=session, agent=session, revision=(1, _NOW), **made, **shown))
    decision = Decision(kind="item", id="x", on=True, by="kim", why="wrong", time=1.0)
    rows = [
        *(("patterns", each.subject.id, each.to_pattern("t").to_json().decode(), each.state_json()) for each in states),
        ("items", item.item_id, "", item.to_json().decode()),
        (DECISIONS, decision.key, decision.to_json().decode(), ""),
    ]

    async def each() -> AsyncIterator[tuple[str, str, str, str]]:
        for row in rows:
            yield row

    async def lines() -> tuple[bytes, ...]:
        return tuple([line async for line in written("t", _NOW, each(), None)])

    with ThreadPoolExecutor(1) as thread:  # this thread runs a loop already
        return thread.submit(asyncio.run, lines()).result()


def make_lore(random: Random) -> Given:
    header, *lines, end = _lore()
    whole = b"".join(_odd_line(random, line.strip()) + b"\n" if chance(random, 4) else line for line in lines)
    whole = (_odd_line(random, header.strip()) + b"\n" if chance(random, 20) else header) + whole
    closed = {"lines": whole.count(b"\n"), "sha256": sha256(whole).hexdigest(), "schema": 1}
    return Given("lore", {"lore": whole + (end if chance(random, 10) else orjson.dumps(closed) + b"\n")})


async def check_lore(given: Sequence[Given]) -> Counter[str]:
    """Every file is refused as a whole, or the stages take all of it."""
    found: Counter[str] = Counter()
    with TemporaryDirectory() as folder:
        for each in given:
            path = Path(folder) / "lore"
            path.write_bytes(each.files["lore"])
            try:
                file = LoreFile(path, "default", None)
            except ConfigError as error:
                assert str(error).endswith("Nothing was imported")
                found["refused"] += 1
                continue
            values: dict[str, list[Record]] = {}
            for value in file.values():
                record = Record(topic("default", value.topic), 0, 0, None, value.value, {})
                values.setdefault(value.topic, []).append(record)
            clock, metrics = FakeClock(), Metrics("fuzz")
            for stage in (PatternsStage(MemoryStore(), clock, metrics), ItemsStage(MemoryStore(), clock, metrics)):
                assert not (await stage.process(values.get(stage.reads, []))).dead_letters
                for row in (row for rows in (await stage.process([])).rows.values() for row in rows):
                    assert max(len(row["body"].encode()), len(row["state"].encode())) <= MAX_FIELD_BYTES
            found["taken"] += 1
    return found


LOGS = Boundary("logs", make_log, check_logs, size, full=20_000, batch=200)
LORE = Boundary("lore", make_lore, check_lore, size, full=20_000, batch=200)
SETTINGS = Boundary("settings", make_setting, check_settings, size, full=20_000, batch=500)
