"""Define the file of `fleetlore export lore`: a header, one JSON object a line, and a last line that closes the file.

The last line holds the number of lines and their SHA-256, signed by the tenant's key if there is one, so a cut or
changed file is refused as a whole. A line of a pattern or an item has its public form (`body`) for people, and its
state. An import reads the state alone and computes the counts from the sessions in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import msgspec
import orjson
from msgspec import Meta

from fleetlore.adapters.signatures import SigningKey, public_keys, signed_by
from fleetlore.errors import AdapterRefused, ConfigError
from fleetlore.fingerprint.fingerprint import VERSION as PATTERNS
from fleetlore.wire.adapter_manifest import SCHEMA
from fleetlore.wire.decode import json_reader
from fleetlore.wire.lore import DECISIONS, Decision, Pattern
from fleetlore.wire.trajectory import Count, Hash, Moment
from models.cases import VERSION as ITEMS
from models.memory.bottom_k import AgentHash
from models.memory.item_state import ItemState
from models.memory.pattern_state import PatternState
from sinks.collections import MAX_FIELD_BYTES
from streams.stage.base import Outgoing
from streams.stage.operators import ERASURES, Adopt, Erasure

__all__ = ["KINDS", "LoreFile", "written"]

_FORMAT = "fleetlore.lore/1"
# A row's two largest fields as JSON, whose quotes and backslashes are escaped.
_MAX_LINE_BYTES = 4 * MAX_FIELD_BYTES
# The topics of contributions, whose readers own the states.
_OWNERS = {"patterns": "observations", "items": "candidates"}
KINDS: dict[str, type[Decision | Erasure]] = {DECISIONS: Decision, ERASURES: Erasure}

_Number = Annotated[int, Meta(ge=0, lt=2**31)]


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
    """`kind`: a collection, or a compacted topic whose record is in `body`."""

    kind: str
    id: str
    body: msgspec.Raw
    state: msgspec.Raw = msgspec.Raw(b"null")


class _Counts(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    session: Hash
    agent: AgentHash
    calls: Count
    failures: Count
    ended: Annotated[int, Meta(ge=0, le=2)]
    again: Count = 0


class _Period(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    number: _Number
    session: Hash
    agent: AgentHash
    calls: Count
    failures: Count
    ended: Annotated[int, Meta(ge=0, le=2)]
    again: Count = 0


class _PatternState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The types of `PatternState.state_json`, whose reader trusts its own store."""

    sessions: list[_Counts]
    first: list[tuple[AgentHash, Moment]]
    hours: list[_Period] = []
    days: list[_Period] = []
    minutes: list[_Period] = []
    k: dict[str, Annotated[int, Meta(ge=1, le=512)]] = {}
    words: list[tuple[bool, str, str, str, list[tuple[AgentHash, list[Hash]]]]] = []
    names: list[tuple[AgentHash, str]] = []
    hidden: str = ""


async def written(
    tenant: str, moment: float, rows: AsyncIterator[tuple[str, str, str, str]], key: SigningKey | None
) -> AsyncIterator[bytes]:
    """Yield the lines of a file. `rows`: kind, id, body and state of each line."""
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
    """A file that was read and checked to its end.

    Args:
        trusted: public keys, as in `FLEETLORE_PUBLIC_KEY`, or None to believe the file without a signature.

    Attributes:
        counts: numbers of lines by kind.
        signer: id of the key that signed it, or "".

    Raises:
        ConfigError: it cannot be read, is no such file, is incomplete, or no trusted key signed it.
    """

    def __init__(self, path: Path, tenant: str, trusted: str | None) -> None:
        self._path, self._tenant = path, tenant
        self.header, self.signer, self.counts = self._check(trusted)

    def values(self) -> Iterator[Outgoing]:
        """Read the file again: the requests to the states' owners, and the records of compacted topics."""
        for number, line in enumerate(self._lines(), 1):
            if 1 < number <= sum(self.counts.values()) + 1:
                yield self._parsed(number, line)

    def _check(self, trusted: str | None) -> tuple[_Header, str, Counter[str]]:
        counts, digest, lines = Counter[str](), sha256(), self._lines()
        header = self._header(next(lines, b""))
        before, number = b"", 1
        for number, line in enumerate(self._lines(), 1):
            digest.update(before)
            if number > 2:
                counts[self._kind(number - 1, before)] += 1
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

    def _kind(self, number: int, line: bytes) -> str:
        self._parsed(number, line)
        return json_reader(_Line)(line).kind

    def _parsed(self, number: int, text: bytes) -> Outgoing:
        try:
            line = json_reader(_Line)(text)
            if line.kind in KINDS:
                record = json_reader(KINDS[line.kind])(bytes(line.body))
                return Outgoing(self._tenant, line.kind, record.key, record.to_json())
            adopt = _pattern(line) if line.kind == "patterns" else _item(line, self._tenant)
        except Exception as error:  # any fault of a state shows here, before anything is sent
            raise self._refused(f"line {number} cannot be read: {error or repr(error)}") from None
        return Outgoing(self._tenant, _OWNERS[line.kind], adopt.id, adopt.to_json())

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


def _pattern(line: _Line) -> Adopt:
    kept = json_reader(_PatternState)(bytes(line.state))
    body = "" if bytes(line.body) == b"null" else bytes(line.body).decode()
    pattern = Pattern.from_json(body or kept.hidden)
    state = PatternState.restore(body, bytes(line.state).decode())
    made = state.to_pattern(pattern.tenant)
    if pattern.id != line.id or not line.id.isalnum():
        raise ValueError(f"the id is not that of the pattern {pattern.id[:40]!r}")
    counts: list[_Counts | _Period] = [*kept.sessions, *kept.hours, *kept.days, *kept.minutes]
    if any(each.failures > each.calls for each in counts):
        raise ValueError("more failures than calls")
    return _adopt(line.id, made.to_json() if body else b"", (state.state_json() if body else state.hidden_json()))


def _item(line: _Line, tenant: str) -> Adopt:
    if line.kind != "items":
        raise ValueError(f"unknown kind {line.kind[:40]!r}")
    state = ItemState.from_json(bytes(line.state)).of_tenant(tenant)
    if not {each.item_id for each in state.candidates} <= {line.id} or not line.id.isalnum():
        raise ValueError("the id is not that of its contributions")
    state.to_item()
    return _adopt(line.id, b"", state.to_json().decode())


def _adopt(id: str, body: bytes, state: str) -> Adopt:
    if max(len(body), len(state.encode())) > MAX_FIELD_BYTES:
        raise ValueError(f"a field is longer than {MAX_FIELD_BYTES:,} bytes")
    return Adopt(id, body.decode(), state)
