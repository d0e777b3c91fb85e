"""Write and merge the file of `fleetlore export lore` (a header, JSON lines, a closing one), and write hints as skills.

The last line holds the number of lines, their SHA-256, and a signature if the tenant has a key, so a cut or changed
file is refused. An import reads the `state` of a pattern or item, not its `body`. It asks the states' owners (`Adopt`),
so it merges with the tenant's lore, may be repeated, and runs beside live workers.
"""

import re
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import orjson
from msgspec.structs import replace

from fleetlore.adapters.signatures import SigningKey, public_keys, signed_by
from fleetlore.advice.advice import chosen
from fleetlore.advice.changes import item_tip
from fleetlore.advice.gate import Quote, as_written, clean
from fleetlore.advice.situation import Asked, Asker, Known, Situation
from fleetlore.config import Settings
from fleetlore.errors import AdapterRefused, ConfigError
from fleetlore.files import write_whole
from fleetlore.fingerprint.fingerprint import VERSION as PATTERNS
from fleetlore.recall.index import LoreIndex, is_recalled, when_of
from fleetlore.recall.search import row_id
from fleetlore.wire.adapter_manifest import SCHEMA
from fleetlore.wire.decode import json_reader, latest_from
from fleetlore.wire.lore import DECISIONS, Decision
from fleetlore.wire.stats import stable_hash
from fleetlore.wire.trajectory import Count, Moment
from models.distil.cases import VERSION as ITEMS
from models.memory.bottom_k import BADLY
from models.memory.item_state import ItemState
from models.memory.pattern_state import PatternState
from sinks.collections import MAX_FIELD_BYTES
from sinks.milvus import MilvusStore
from streams.offline.operator_word import Deliver, beside_workers, newest_of
from streams.stage.base import Outgoing, Store
from streams.stage.operators import ERASURES, Adopt, Erased, Erasure, without

__all__ = ["LoreFile", "export_lore", "import_lore", "known_of", "skills_of", "write_skills"]

_FORMAT = "fleetlore.lore/1"
# A row's two largest fields as JSON with escapes.
_MAX_LINE_BYTES = 4 * MAX_FIELD_BYTES
# Topics of contributions: their readers own the states.
_OWNERS = {"patterns": "observations", "items": "candidates"}
_COLLECTION_OF = {contributions: name for name, contributions in _OWNERS.items()}
KINDS: dict[str, type[Decision | Erasure]] = {DECISIONS: Decision, ERASURES: Erasure}

_CHUNK, _READ_SECONDS = 1_000, 30.0
_Times = Mapping[tuple[str, str], float]  # of the records of `KINDS`, by kind and key


class _Header(msgspec.Struct, frozen=True):
    """`patterns`, `items`: versions of the fingerprint and the distiller, which make the ids."""

    format: str
    patterns: str
    items: str
    tenant: str
    time: Moment


class _End(msgspec.Struct, frozen=True):
    lines: Count
    sha256: str
    schema: int = SCHEMA


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    id: str
    body: msgspec.Raw
    state: msgspec.Raw = msgspec.Raw(b"null")


async def written(
    tenant: str, moment: float, rows: AsyncIterator[tuple[str, str, str, str]], key: SigningKey | None
) -> AsyncIterator[bytes]:
    digest, lines = sha256(), 1
    header = orjson.dumps(msgspec.to_builtins(_Header(_FORMAT, PATTERNS, ITEMS, tenant, moment))) + b"\n"
    digest.update(header)
    yield header
    async for kind, id, body, state in rows:
        made: dict[str, Any] = {"kind": kind, "id": id, "body": orjson.Fragment(body or "null")}
        line = orjson.dumps(made | ({"state": orjson.Fragment(state)} if state else {})) + b"\n"
        digest.update(line)
        lines += 1
        yield line
    end = _End(lines, digest.hexdigest())
    yield (orjson.dumps(msgspec.to_builtins(end)) if key is None else key.sign(end)) + b"\n"


class LoreFile:
    """A file, checked to its end.

    `trusted`: public keys, or None to believe an unsigned file. `counts`: lines by kind. `signer`: id of the signing
    key, or "". Raises ConfigError: it cannot be read, is incomplete, or no trusted key signed it.
    """

    def __init__(self, path: Path, tenant: str, trusted: str | None) -> None:
        self._path, self._tenant = path, tenant
        self.header, self.signer, self.counts = self._check(trusted)

    def values(self) -> Iterator[Outgoing]:
        for number, line in enumerate(self._lines(), 1):
            if 1 < number <= sum(self.counts.values()) + 1:
                yield self._parsed(number, line)

    def _check(self, trusted: str | None) -> tuple[_Header, str, Counter[str]]:
        counts, digest, before, number = Counter[str](), sha256(), b"", 1
        header = self._header(next(self._lines(), b""))
        for number, line in enumerate(self._lines(), 1):
            digest.update(before)
            if number > 2:
                name = self._parsed(number - 1, before).topic
                counts[_COLLECTION_OF.get(name, name)] += 1
            before = line
        return header, self._signer(before, number - 1, digest.hexdigest(), trusted), counts

    def _header(self, line: bytes) -> _Header:
        try:
            header = json_reader(_Header)(line)
        except msgspec.DecodeError:
            raise self._refused("it is no file of `fleetlore export lore`") from None
        if (header.format, header.patterns, header.items) != (_FORMAT, PATTERNS, ITEMS):
            raise self._refused(
                f"another release wrote it (format {header.format[:40]!r}, patterns {header.patterns[:20]!r}, items "
                f"{header.items[:20]!r}; this release reads {_FORMAT!r}, {PATTERNS!r}, {ITEMS!r}); export it again "
                "with this release, after its stack has rebuilt its lore"
            )
        return header

    def _signer(self, line: bytes, lines: int, digest: str, trusted: str | None) -> str:
        try:
            end = json_reader(_End)(line)
        except msgspec.DecodeError:
            raise self._refused("its last line is missing, so it is incomplete; export it again") from None
        if (end.lines, end.sha256) != (lines, digest):
            raise self._refused("it was changed or cut after it was written; export it again")
        if trusted is None:
            return ""
        try:
            return signed_by(line, public_keys(trusted))
        except AdapterRefused as error:
            reason = "nobody signed it" if b'"signature"' not in line else f"{error.reason}: {error.detail}"
            raise self._refused(
                f"{reason}; add the key of its fleet to FLEETLORE_PUBLIC_KEY, or give --unsigned if you trust the file "
                "as much as your own agents"
            ) from None

    def _parsed(self, number: int, text: bytes) -> Outgoing:
        try:
            line = json_reader(_Line)(text)
            if line.kind in KINDS:
                record = json_reader(KINDS[line.kind])(bytes(line.body))
                sent = Outgoing(self._tenant, line.kind, record.key, record.to_json())
                newest = max(record.time, record.before) if isinstance(record, Erasure) else record.time
            else:
                adopt, newest = (_pattern if line.kind == "patterns" else _item)(line, self._tenant)
                sent = Outgoing(self._tenant, _OWNERS[line.kind], adopt.id, adopt.to_json())
            if newest > latest_from(time.time()).timestamp():  # no later decision could undo it
                raise ValueError("it has a time in the future; check the clock of the machine that wrote it")
        except Exception as error:  # any fault of a state shows here, before anything is sent
            raise self._refused(f"line {number} cannot be read: {error or repr(error)}") from None
        return sent

    def _lines(self) -> Iterator[bytes]:
        try:
            with self._path.open("rb") as file:
                while line := file.readline(_MAX_LINE_BYTES + 1):
                    if len(line) > _MAX_LINE_BYTES:
                        raise self._refused(f"a line is longer than {_MAX_LINE_BYTES:,} bytes")
                    yield line
        except OSError as error:
            raise self._refused(f"it cannot be read: {error.strerror}") from None

    def _refused(self, why: str) -> ConfigError:
        return ConfigError(f"{self._path}: {why}. Nothing was imported")


def _pattern(line: _Line, tenant: str) -> tuple[Adopt, float]:
    body = "" if bytes(line.body) == b"null" else bytes(line.body).decode()
    state = PatternState.restore(body, bytes(line.state).decode())
    made = state.to_pattern(tenant)
    if made.id != line.id or not line.id.isalnum():
        raise ValueError(f"the id is not that of the pattern {made.id[:40]!r}")
    for each in (each for sample in state.samples for each in sample.kept.values()):
        if not 0 <= each.failures <= each.calls or not 0 <= each.ended <= BADLY or each.again < 0:
            raise ValueError(f"no session has these counts: {each}")
    times = [each.width_seconds * number for each in state.timelines.values() for number in each.samples]
    adopt = _adopt(line.id, made.to_json() if body else b"", state.state_json() if body else state.hidden_json())
    return adopt, max([made.last_seen, *times, *state.callers.values()])


def _item(line: _Line, tenant: str) -> tuple[Adopt, float]:
    if line.kind != "items":
        raise ValueError(f"unknown kind {line.kind[:40]!r}")
    state = ItemState.from_json(bytes(line.state)).of_tenant(tenant)
    if not {each.item_id for each in state.candidates} <= {line.id} or not line.id.isalnum():
        raise ValueError("the id is not that of its contributions")
    state.to_item()
    newest = max([state.last_seen, *(each.seen for each in state.contributors.kept.values())])
    return _adopt(line.id, b"", state.to_json().decode()), newest


def _adopt(id: str, body: bytes, state: str) -> Adopt:
    if max(len(body), len(state.encode())) > MAX_FIELD_BYTES:
        raise ValueError(f"a field is longer than {MAX_FIELD_BYTES:,} bytes")
    return Adopt(id, body.decode(), state)


async def export_lore(settings: Settings, tenant: str, key: SigningKey | None) -> AsyncIterator[bytes]:
    """Yield the lines of a file of the tenant's patterns, items, decisions and erasures.

    Raises StoreUnavailable, BrokerUnavailable: the file is incomplete, as its last line shows.
    """
    records = await _records(settings, tenant)
    async with MilvusStore.from_settings(settings) as store:
        async for line in written(tenant, time.time(), rows_of(store, tenant, records), key):
            yield line


async def rows_of(
    store: Store, tenant: str, records: Iterable[tuple[str, Decision | Erasure]]
) -> AsyncIterator[tuple[str, str, str, str]]:
    for kind, record in records:
        yield kind, record.key, record.to_json().decode(), ""
    for collection in _OWNERS:
        async for row in store.rows(collection, tenant, "body", "state"):
            if row["state"]:  # an empty row once held an erased session
                yield collection, row["id"].partition("/")[2], row["body"], row["state"]


async def import_lore(settings: Settings, tenant: str, file: LoreFile, timeout_seconds: float) -> None:
    """Merge a file into the tenant's lore, and wait until workers have stored and published it.

    Raises StoreUnavailable, BrokerUnavailable, StackError (time-out): run it again.
    """
    erased, known = Erased(), dict[tuple[str, str], float]()
    for kind, record in await _records(settings, tenant):
        known[kind, record.key] = record.time
        if isinstance(record, Erasure):
            erased.take(tenant, record.to_json())
    async with beside_workers(settings, tenant, timeout_seconds) as owners:
        trust = await deliver(file, known, owners.deliver, erased)
        await owners.drained()
        for decided in trust:
            await owners.settle(decided)


async def deliver(
    file: LoreFile, known: Mapping[tuple[str, str], float], send: Deliver, erased: Erased
) -> list[Decision]:
    """Send a file's values without older decisions than those `known`, by kind and key, and without what names persons
    erased since. Return the decisions about agents."""
    chunk, trust = list[Outgoing](), list[Decision]()
    for value in file.values():
        record = _record_of(value)
        if record is not None and record.time <= known.get((value.topic, value.key), 0.0):
            continue
        if isinstance(record, Decision):
            kept = without(record, partial(erased.drops, value.tenant, "", time=record.time))
            if kept.hint is not None or record.hint is None:
                chunk += [Outgoing(value.tenant, name, key, kept.to_json()) for name, key in kept.records]
                trust += [kept] if kept.kind == "agent" else []
        else:
            chunk.append(value)
        if len(chunk) >= _CHUNK:
            await send(chunk)
            chunk = []
    await send(chunk)
    return trust


def _record_of(value: Outgoing) -> Decision | Erasure | None:
    return json_reader(KINDS[value.topic])(value.value or b"") if value.topic in KINDS else None


async def known_of(settings: Settings, tenant: str, file: LoreFile) -> Counter[str]:
    known = {(kind, record.key): record.time for kind, record in await _records(settings, tenant)}
    async with MilvusStore.from_settings(settings) as store:
        return await known_in(store, tenant, file, known)


async def known_in(store: Store, tenant: str, file: LoreFile, known: _Times) -> Counter[str]:
    found, ids = Counter[str](), defaultdict[str, list[str]](list)
    for value in file.values():
        if (record := _record_of(value)) is not None:
            found[value.topic] += record.time <= known.get((value.topic, value.key), 0.0)
        else:
            ids[_COLLECTION_OF[value.topic]].append(row_id(tenant, value.key))
    for name, rows in ids.items():
        for start in range(0, len(rows), _CHUNK):
            found[name] += len(await store.get(name, rows[start : start + _CHUNK], "id"))
    return found


async def _records(settings: Settings, tenant: str) -> list[tuple[str, Decision | Erasure]]:
    decisions = await newest_of(settings, tenant, DECISIONS, Decision, _READ_SECONDS)
    erasures = await newest_of(settings, tenant, ERASURES, Erasure, _READ_SECONDS)
    return [(DECISIONS, each) for each in decisions.values()] + [(ERASURES, each) for each in erasures.values()]


# A skill's name has at most 64 characters. The hash takes nine.
_MAX_NAME, _MAX_HINTS, _MAX_TITLE = 48, 50, 200
_MADE = "Written by `fleetlore export lore --tenant {}`. Another export replaces this file."


def skills_of(index: LoreIndex, settings: Settings, now: float) -> dict[str, list[str]]:
    found = defaultdict[str, list[str]](list)
    index.end_corrections(now)
    moment = Situation(Asked(), Asker(), Known(now, quorum=settings.quorum, closed_tools=settings.closed_tools))
    for item in sorted(index.items.values(), key=lambda each: (-each.standing(), each.id)):
        about = f"the tool {item.tool}" if item.tool else f"the task {item.task}"
        if is_recalled(item) and not index.hides(item) and len(found[about]) < _MAX_HINTS:
            tip = item_tip(item, "searched")
            if beside := item.names_beside:  # without them a word of one program is told to all
                names = Quote(", ".join(f"`{each}`" for each in beside), item.agents, "call", item.danger)
                tip = tip._replace(parts=("In a call with ", names, ": ", *tip.parts))
            tips = chosen(index, [tip], moment, 1).tips
            found[about] += [tip.text for tip in tips if tip.text not in found[about]]
    for hint, _ in index.hints.standing.values():
        if not 0 < hint.until <= now:
            about = f"the tool {hint.tool}" if hint.tool else f"the task {hint.task}" if hint.task else "any tool"
            when = when_of(replace(hint, tool="", task=""))
            found[about].insert(0, as_written(f"{when}: {hint.text} (written by {hint.author})"))
    return {about: lines for about, lines in found.items() if lines}


def write_skills(folder: Path, tenant: str, skills: Mapping[str, Sequence[str]]) -> list[str]:
    """Write a folder for each skill, and remove the tenant's others: what persons took back may not stay."""
    names, made = [], _MADE.format(tenant)
    for about, lines in sorted(skills.items()):
        words = re.sub(r"[^a-z0-9]+", "-", about.removeprefix("the ").lower()).strip("-")[:_MAX_NAME].strip("-")
        name = f"{words}-{stable_hash(f'{tenant} {about}') % 16**8:08x}"
        title = clean(" ".join(about.split())[:_MAX_TITLE])
        told = orjson.dumps(f"What other agents found out about {title}. Read it before you work with it.").decode()
        front = ["---", f"name: {name}", f"description: {told}", "---", "", made, ""]
        try:
            (folder / name).mkdir(parents=True, exist_ok=True)
            write_whole(folder / name / "SKILL.md", "\n".join([*front, *(f"- {line}" for line in lines), ""]).encode())
        except OSError as error:
            raise ConfigError(f"{folder / name} cannot be written: {error.strerror}") from None
        names.append(name)
    for file in folder.glob("*/SKILL.md"):
        with suppress(OSError):  # files of others stay, and so does their folder
            if file.parent.name not in names and made in file.read_text(errors="replace"):
                file.unlink()
                file.parent.rmdir()
    return names
