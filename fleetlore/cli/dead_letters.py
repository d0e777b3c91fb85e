"""Run `dead-letters list` and `dead-letters show`. The server package adds `redrive`."""

import heapq
import json as json_
import re
from collections import Counter
from dataclasses import replace
from operator import itemgetter
from typing import Annotated, Any

import orjson
import typer

from fleetlore.cli import shared
from fleetlore.cluster import Bootstrap
from fleetlore.wire.dead_letter import DeadLetterRecord, Mark, read_dead_letter
from fleetlore.wire.topics import topic as full_name

__all__ = ["Reason", "place"]

SHOWN_CHARACTERS = 4_000
_PLACE = re.compile(r"\d{1,9}:\d{1,18}\Z", re.ASCII)

Reason = Annotated[list[str] | None, typer.Option("--reason", help="Select this reason; repeat for several.")]


def place(text: str) -> str:
    """Raises BadParameter: the text is no dead letter's id."""
    if not _PLACE.match(text):
        raise typer.BadParameter(f"{text!r} is not PARTITION:OFFSET, as `fleetlore dead-letters list` shows it")
    return text


@shared.command
def list_(reader: shared.Reader, reason: Reason = None, limit: shared.Limit = 20) -> None:
    """List dead letters by reason, and the newest ones."""
    tenant = reader.tenant
    found = _survey(reader.settings.cluster, tenant, reader.timeout, set(reason or ()), limit)
    groups, rows, total = shared.ask(found)
    if reader.json:
        shared.print_json({"tenant": tenant, "total": total, "reasons": groups, "letters": rows})
        return
    nothing = f"No dead letter of tenant {tenant} matches."
    shared.print_list(reader, "reasons", groups, _GROUP_COLUMNS, nothing=nothing)
    if rows:
        typer.echo()
        shared.print_list(reader, "letters", rows, _COLUMNS, nothing=nothing)
        shared.say_rest(total, limit)


@shared.command
def show(
    reader: shared.Reader,
    id_: Annotated[str, typer.Argument(metavar="ID", help="PARTITION:OFFSET, as `list` shows it.", callback=place)],
    full: Annotated[bool, typer.Option("--full", help="Show the whole value.")] = False,
) -> None:
    """Show one dead letter: source, reason and masked value."""
    from fleetlore.redact.redact import redact
    from fleetlore.redact.values import redact_value

    letter = shared.ask(_letter(reader.settings.cluster, reader.tenant, id_))
    if letter is None:
        raise typer.BadParameter(f"tenant {reader.tenant} has no dead letter at {id_}", param_hint="ID")
    value, more = _readable(letter.value, None if full else SHOWN_CHARACTERS)
    row = _row(letter) | {
        "stage": letter.stage,
        "sha256": letter.sha256,
        "cut": sorted(letter.cut),
        "key": None if letter.key is None else redact(letter.key.decode("utf-8", "replace")),
        "headers": redact_value({name: (said or b"").decode("utf-8", "replace") for name, said in letter.headers}),
    }
    if reader.json:
        shared.print_json({**row, "value": value, "shown_whole": not more})
        return
    for name, said in row.items():
        text = shared.moment(letter.time) if name == "time" else said if isinstance(said, str) else json_.dumps(said)
        typer.echo(f"{name:<10} {shared.safe(text)}")
    typer.echo(f"\n{shared.safe_lines(value)}")
    if more:
        typer.echo(f"\n{more} more characters; show them with --full")
    if "value" in letter.cut:
        typer.echo(f"\n{len(letter.value)} of {letter.size} bytes are kept here; the source topic has the rest.")


_GROUP_COLUMNS: shared.Columns = {
    "REASON": itemgetter("reason"),
    ">LETTERS": itemgetter("letters"),
    "NEWEST (UTC)": lambda row: shared.moment(row["newest"]),
}
_COLUMNS: shared.Columns = {
    "ID": itemgetter("id"),
    "WRITTEN (UTC)": lambda row: shared.moment(row["time"]),
    "REASON": itemgetter("reason"),
    "FROM": lambda row: f"{row['topic']}[{row['partition']}]@{row['offset']}",
    ">BYTES": itemgetter("bytes"),
    "SENT BACK": lambda row: "yes" if row["sent_back"] else "-",
    "~DETAIL": itemgetter("detail"),
}


def _row(letter: DeadLetterRecord) -> dict[str, Any]:
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
    }


def _readable(value: bytes, limit: int | None) -> tuple[str, int]:
    from fleetlore.redact.redact import redact
    from fleetlore.redact.values import redact_value

    try:
        text = json_.dumps(redact_value(orjson.loads(value)), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = redact(value.decode("utf-8", "replace"))
    return text[:limit], max(0, len(text) - len(text[:limit]))


async def _survey(
    bootstrap: Bootstrap, tenant: str, timeout: float, wanted: set[str], limit: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """Return groups by reason, the newest letters, and how many there are. One that was written twice counts once."""
    from fleetlore.kafka.read import read_dead_letters

    seen, marked = set[int](), set[str]()
    reasons, newest_of = Counter[str](), dict[str, float]()
    newest: list[tuple[float, int, DeadLetterRecord]] = []
    async for each in read_dead_letters(bootstrap, tenant, timeout):
        if isinstance(each, Mark):
            marked.add(each.place)
        elif (not wanted or each.reason in wanted) and (identity := hash(each.identity)) not in seen:
            seen.add(identity)
            reasons[each.reason] += 1
            newest_of[each.reason] = max(each.time, newest_of.get(each.reason, 0.0))
            heapq.heappush(newest, (each.time, len(seen), replace(each, value=b"")))
            if len(newest) > limit:
                heapq.heappop(newest)
    groups = [{"reason": name, "letters": count, "newest": newest_of[name]} for name, count in reasons.most_common()]
    letters = [each for _, _, each in sorted(newest, reverse=True)]
    return groups, [_row(each) | {"sent_back": each.place in marked} for each in letters], len(seen)


async def _letter(bootstrap: Bootstrap, tenant: str, id_: str) -> DeadLetterRecord | None:
    from fleetlore.kafka.read import observer, record_at

    partition, _, offset = id_.partition(":")
    async with observer(bootstrap) as consumer:
        record = await record_at(consumer, full_name(tenant, "dead-letters"), int(partition), int(offset))
    read = None if record is None else read_dead_letter(record)
    return read if isinstance(read, DeadLetterRecord) else None
