"""Run `dead-letters list` and `dead-letters show`. The server package adds `redrive`."""

from __future__ import annotations

import heapq
import json as json_
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetlore.cli.shared import (
    Columns,
    Limit,
    Reader,
    ask,
    command,
    moment,
    print_json,
    print_list,
    safe,
    safe_lines,
    say_rest,
)

if TYPE_CHECKING:
    from fleetlore.cluster import Bootstrap
    from fleetlore.wire.dead_letter import DeadLetterRecord

__all__ = ["Reason", "place"]

SHOWN_CHARACTERS = 4_000
_PLACE = re.compile(r"\d{1,9}:\d{1,18}\Z", re.ASCII)

Reason = Annotated[list[str] | None, typer.Option("--reason", help="Select this reason; repeat for several.")]


def place(text: str) -> str:
    """Raises BadParameter: the text is no dead letter's id."""
    if not _PLACE.match(text):
        raise typer.BadParameter(f"{text!r} is not PARTITION:OFFSET, as `fleetlore dead-letters list` shows it")
    return text


@dataclass(slots=True)
class _Survey:
    limit: int
    total: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    newest_of: dict[str, float] = field(default_factory=dict)
    marked: set[str] = field(default_factory=set)
    _newest: list[tuple[float, int, DeadLetterRecord]] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)

    def take(self, letter: DeadLetterRecord) -> None:
        identity = hash(letter.identity)
        if identity in self._seen:
            return
        self._seen.add(identity)
        self.total += 1
        self.reasons[letter.reason] += 1
        self.newest_of[letter.reason] = max(letter.time, self.newest_of.get(letter.reason, 0.0))
        heapq.heappush(self._newest, (letter.time, self.total, replace(letter, value=b"")))
        if len(self._newest) > self.limit:
            heapq.heappop(self._newest)

    def newest(self) -> list[DeadLetterRecord]:
        return [letter for _, _, letter in sorted(self._newest, reverse=True)]


@command
def list_(reader: Reader, reason: Reason = None, limit: Limit = 20) -> None:
    """List dead letters by reason, and the newest ones."""
    tenant = reader.tenant
    survey = ask(_survey(reader.settings.cluster, tenant, reader.timeout, set(reason or ()), limit))
    rows = [_row(letter, letter.place in survey.marked) for letter in survey.newest()]
    groups = [
        {"reason": name, "letters": count, "newest": survey.newest_of[name]}
        for name, count in survey.reasons.most_common()
    ]
    if reader.json:
        print_json({"tenant": tenant, "total": survey.total, "reasons": groups, "letters": rows})
        return
    nothing = f"No dead letter of tenant {tenant} matches."
    print_list(reader, "reasons", groups, _GROUP_COLUMNS, nothing=nothing)
    if rows:
        typer.echo()
        print_list(reader, "letters", rows, _COLUMNS, nothing=nothing)
        say_rest(survey.total, limit)


@command
def show(
    reader: Reader,
    id_: Annotated[str, typer.Argument(metavar="ID", help="PARTITION:OFFSET, as `list` shows it.", callback=place)],
    full: Annotated[bool, typer.Option("--full", help="Show the whole value.")] = False,
) -> None:
    """Show one dead letter: source, reason and masked value."""
    from fleetlore.redact.redact import redact
    from fleetlore.redact.values import redact_value

    letter = ask(_letter(reader.settings.cluster, reader.tenant, id_))
    if letter is None:
        raise typer.BadParameter(f"tenant {reader.tenant} has no dead letter at {id_}", param_hint="ID")
    value, more = _readable(letter.value, None if full else SHOWN_CHARACTERS)
    row = {name: said for name, said in _row(letter, False).items() if name != "sent_back"}
    row |= {
        "stage": letter.stage,
        "sha256": letter.sha256,
        "cut": sorted(letter.cut),
        "key": None if letter.key is None else redact(letter.key.decode("utf-8", "replace")),
        "headers": redact_value({name: (said or b"").decode("utf-8", "replace") for name, said in letter.headers}),
    }
    if reader.json:
        print_json({**row, "value": value, "shown_whole": not more})
        return
    for name, said in row.items():
        text = moment(letter.time) if name == "time" else said if isinstance(said, str) else json_.dumps(said)
        typer.echo(f"{name:<10} {safe(text)}")
    typer.echo(f"\n{safe_lines(value)}")
    if more:
        typer.echo(f"\n{more} more characters; show them with --full")
    if "value" in letter.cut:
        typer.echo(f"\n{len(letter.value)} of {letter.size} bytes are kept here; the source topic has the rest.")


_GROUP_COLUMNS: Columns = {
    "REASON": itemgetter("reason"),
    ">LETTERS": itemgetter("letters"),
    "NEWEST (UTC)": lambda row: moment(row["newest"]),
}
_COLUMNS: Columns = {
    "ID": itemgetter("id"),
    "WRITTEN (UTC)": lambda row: moment(row["time"]),
    "REASON": itemgetter("reason"),
    "FROM": lambda row: f"{row['topic']}[{row['partition']}]@{row['offset']}",
    ">BYTES": itemgetter("bytes"),
    "SENT BACK": lambda row: "yes" if row["sent_back"] else "-",
    "~DETAIL": itemgetter("detail"),
}


def _row(letter: DeadLetterRecord, sent_back: bool) -> dict[str, Any]:
    """A detail may quote secrets."""
    from fleetlore.redact.redact import redact

    return {
        "id": letter.place,
        "time": letter.time,
        "reason": letter.reason,
        "detail": redact(letter.detail),
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "bytes": letter.size,
        "redriven": letter.redriven,
        "sent_back": sent_back,
    }


def _readable(value: bytes, limit: int | None) -> tuple[str, int]:
    import orjson

    from fleetlore.redact.redact import redact
    from fleetlore.redact.values import redact_value

    try:
        text = json_.dumps(redact_value(orjson.loads(value)), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = redact(value.decode("utf-8", "replace"))
    return text[:limit], max(0, len(text) - len(text[:limit]))


async def _survey(bootstrap: Bootstrap, tenant: str, timeout: float, reasons: set[str], limit: int) -> _Survey:
    from fleetlore.kafka.read import read_dead_letters
    from fleetlore.wire.dead_letter import Mark

    survey = _Survey(limit)
    async for each in read_dead_letters(bootstrap, tenant, timeout):
        if isinstance(each, Mark):
            survey.marked.add(each.place)
        elif not reasons or each.reason in reasons:
            survey.take(each)
    return survey


async def _letter(bootstrap: Bootstrap, tenant: str, id_: str) -> DeadLetterRecord | None:
    from fleetlore.kafka.read import observer, record_at
    from fleetlore.wire.dead_letter import DeadLetterRecord, read_dead_letter
    from fleetlore.wire.topics import topic as full_name

    partition, _, offset = id_.partition(":")
    async with observer(bootstrap) as consumer:
        record = await record_at(consumer, full_name(tenant, "dead-letters"), int(partition), int(offset))
    read = None if record is None else read_dead_letter(record)
    return read if isinstance(read, DeadLetterRecord) else None
