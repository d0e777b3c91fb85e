"""Run `fleetlore hints`."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fleetlore.cli.lore import read_lore
from fleetlore.cli.shared import Columns, Reader, ask, command, confirm, group, moment, print_json, print_list, safe
from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.wire.events import checked_name
from fleetlore.wire.lore import MAX_WHY, Decision, MemoryItem

if TYPE_CHECKING:
    from fleetlore.advice.decide import Judgment, Reviews
    from fleetlore.recall.index import LoreIndex, Written

__all__ = ["register"]

_DAY_SECONDS = 86_400.0


def register(app: typer.Typer) -> None:
    hints = group(app, "hints")
    hints.info.help = "Write, correct, approve and take back what agents are shown."
    for each in (list_all, show, add, edit, approve):
        hints.command("list" if each is list_all else None)(each)
    judgments: dict[Judgment, str] = {
        "reject": "Hide hints and lessons from all agents. `approve` shows them again.",
        "expire": "End hints now.",
    }
    for judgment, text in judgments.items():
        hints.command(judgment, help=text)(_judging(judgment))


def _moment(text: str) -> float:
    """Return the Unix time of a date, a time (ISO 8601, UTC without an offset), a number of days (`30d`) or `never`."""
    if text == "never":
        return 0.0
    try:
        if text.endswith("d"):
            return time.time() + timedelta(days=float(text[:-1])).total_seconds()
        parsed = datetime.fromisoformat(text)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is no date, as 2027-01-31, and no number of days, as 30d") from None


def checked_reason(text: str) -> str:
    """Bytes that are no UTF-8 come from a terminal as halves of surrogate pairs."""
    if not text.strip() or len(text) > MAX_WHY or text != text.encode(errors="replace").decode():
        raise typer.BadParameter(f"say why, in 1 to {MAX_WHY} characters of UTF-8")
    return text.strip()


Why = Annotated[str, typer.Option("--why", help="Reason; it is kept with the decision.", callback=checked_reason)]
By = Annotated[
    str, typer.Option("--by", help="Author, on a cluster without logins. Default: your login, else your user name.")
]


def author(settings: Settings, by: str) -> str:
    """Return the login that the broker proves, or else `by` or the name of this user. Raises BadParameter."""
    if login := settings.kafka_sasl_username:
        if by not in ("", login):
            raise typer.BadParameter(f"the broker knows you as {login}: leave --by out")
        return login
    try:
        return checked_name("--by", by.strip() or getpass.getuser())
    except (KeyError, OSError, ImportError):  # a container's user id may have no name
        raise typer.BadParameter("you have no name on this machine: give --by") from None


def whole(beginning: str, known: Iterable[str], what: str) -> str:
    known = list(known)
    found = [beginning] if beginning in known else [id for id in known if beginning and id.startswith(beginning)]
    if len(found) != 1:
        raise ConfigError(f"{f'{len(found)} {what}s begin' if found else f'no {what} begins'} with {beginning!r}")
    return found[0]


_Id = Annotated[str, typer.Argument(metavar="ID", help="Id of a hint or a memory item; its beginning is enough.")]
_Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of hints or memory items.")]


@dataclass(frozen=True)
class _Fields:
    start: Annotated[
        bool | None, typer.Option("--start/--no-start", help="Show it at the start of a session.", show_default=False)
    ] = None
    before: Annotated[
        list[str] | None,
        typer.Option(
            "--before",
            metavar="WORD",
            help="Show it before a call that holds this word or `name=value`, or is of this tool; repeat: all of them.",
        ),
    ] = None
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="FAILURE", help="Show it after a failure: its class, pattern id, tool or words."
        ),
    ] = None
    tool: Annotated[str | None, typer.Option("--tool", help="Only for this tool.")] = None
    place: Annotated[str | None, typer.Option("--place", help="Only at this place.")] = None
    task: Annotated[str | None, typer.Option("--task", help="Only for this task.")] = None
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="When it ends: a date, days as 30d, or never.")
    ] = None
    by: By = ""

    @property
    def given(self) -> dict[str, Any]:
        until = None if self.until is None else _moment(self.until)
        before = tuple(filter(None, self.before)) if self.before else None  # `--before ""` takes all words back
        made = {"start": self.start, "before": before, "until": until}
        made |= {name: getattr(self, name) for name in ("after", "tool", "place", "task")}
        return {name: value for name, value in made.items() if value is not None}


@command
def list_all(
    reader: Reader,
    waiting: Annotated[
        bool, typer.Option("--proposed", help="List the learned lessons that wait for approval (FLEETLORE_REVIEW).")
    ] = False,
) -> None:
    """List the hints of persons, the newest first.

    REVIEW says why one may no longer hold.
    """
    from fleetlore.advice.decide import Reviews, proposed

    index = read_lore(reader)
    found: list[Any] = list(proposed(index)) if waiting else list(index.hints.standing.values())
    about = Reviews(index)
    nothing = f"No {'lesson waits' if waiting else 'hint of a person is known'} for tenant {reader.tenant}."
    rows = [_row(index, each, about) for each in found]
    print_list(reader, "hints", rows, _COLUMNS, nothing=nothing, as_json=dict)


@command
def show(reader: Reader, id: _Id) -> None:
    """Show a hint or a memory item in full."""
    from fleetlore.advice.decide import Reviews

    index = read_lore(reader)
    row = _row(index, _named(index, id), Reviews(index))
    if reader.json:
        print_json(row)
        return
    for name, value in row.items():
        typer.echo(f"{name:<10} {safe(str(moment(value) if name in _TIMES else value)) or '-'}")


@command
def add(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What agents are shown, in one imperative line.")],
    why: Why,
    fields: _Fields,
    reader: Reader,
) -> None:
    """Write a hint. Agents read it within a second, where it fits, with your name."""
    from fleetlore.advice.decide import Draft, write

    draft = Draft(text=text, why=why, **fields.given)
    _decide(reader, fields.by, lambda index, by: [write(index, draft, by=by, now=time.time())])


@command
def edit(
    id: _Id,
    why: Why,
    fields: _Fields,
    reader: Reader,
    text: Annotated[str | None, typer.Option("--text", help="What agents are shown.")] = None,
) -> None:
    """Change a hint, or correct a memory item.

    Agents are shown your text in its place from then on. Without --text it prints the present words and asks.
    """
    changes = fields.given | ({} if text is None else {"text": text})

    from fleetlore.advice.decide import draft_of, write

    def change(index: LoreIndex, by: str) -> list[Decision]:
        draft = draft_of(index, _whole(index, id))
        assert draft is not None
        return [write(index, msgspec.structs.replace(draft, why=why, **changes), by=by, now=time.time())]

    _decide(reader, fields.by, change, unread="give --text" if text is None else "")


@command
def approve(
    reader: Reader,
    ids: _Ids,
    why: Why,
    by: By = "",
    wording: Annotated[
        list[str] | None,
        typer.Option("--wording", help="That of `hints list --json`, as you read it; one for each ID."),
    ] = None,
) -> None:
    """Approve proposed lessons, and hints that ask for review.

    It prints their words and asks. With --wording it approves only the words that you read, and does not ask.
    """
    if wording and len(wording) != len(ids):
        raise typer.BadParameter("give one --wording for each ID, in the same order")
    _decide(reader, by, _judgments("approve", ids, why, wording), "" if wording else "give one --wording for each ID")


def _judging(judgment: Judgment) -> Callable[..., None]:
    def judge(reader: Reader, ids: _Ids, why: Why, by: By = "") -> None:
        _decide(reader, by, _judgments(judgment, ids, why))

    return command(judge)


def _judgments(judgment: Judgment, ids: list[str], why: str, wording: list[str] | None = None) -> _Decide:
    from fleetlore.advice.decide import judged

    return lambda index, by: [
        judged(index, judgment, _whole(index, id), by=by, why=why, now=time.time(), wording=read)
        for id, read in zip(ids, wording or repeat(None), strict=False)
    ]


_Decide = Callable[["LoreIndex", str], list[Decision]]


def _decide(reader: Reader, by: str, decisions: _Decide, unread: str = "") -> None:
    """`unread`: what to do without a terminal, if the person neither typed nor named the words."""
    from fleetlore.advice.decide import words_of
    from streams.offline.operator_word import decide

    settings, index = reader.settings, read_lore(reader)
    by = author(settings, by)
    made = decisions(index, by)  # all or none
    if unread:
        for each in made:
            words = words_of(index.known_items[each.id]) if each.hint is None else each.hint.text
            typer.echo(f"{safe(each.id)}: {safe(words)}", err=True)
        confirm("Show these words to agents?", unread)
    ask(decide(settings, reader.tenant, *made))
    if reader.json:
        print_json([msgspec.to_builtins(each) for each in made])
        return
    for decided in made:
        hint = decided.hint
        until = hint.until if hint is not None else 0.0
        state = "hidden" if decided.on else "ended" if 0 < until <= decided.time else "shown to agents"
        if decided.on and hint is not None and hint.replaces:
            state += f", and the item {safe(hint.replaces)} is shown again"
        typer.echo(f"The {decided.kind} {safe(decided.id)} of tenant {reader.tenant} is {state}.")


def _whole(index: LoreIndex, beginning: str) -> str:
    return whole(beginning, [*index.hints.decisions, *index.known_items], "hint or memory item")


def _named(index: LoreIndex, beginning: str) -> Written | MemoryItem:
    from fleetlore.recall.index import Written

    id = _whole(index, beginning)
    decided = index.hints.decisions.get(id)
    if decided is not None and decided.hint is not None:
        return Written(decided.hint, decided)
    return index.known_items[id]


def _row(index: LoreIndex, about: Written | MemoryItem, reviews: Reviews) -> dict[str, Any]:
    from fleetlore.advice.decide import words_of
    from fleetlore.recall.index import when_of

    asks = reviews.reason(about)
    if isinstance(about, MemoryItem):
        known = {"id": about.id, "text": words_of(about), "when": about.when, "author": "", "agents": about.agents}
        known |= {"sessions": about.support, "against": about.against, "written": about.first_seen}
        known |= {"confirmed": about.last_seen, "wording": about.wording}
        return known | {"until": 0.0, "state": _state(index, about), "review": asks}
    hint, decided = about
    known = {
        "id": decided.id,
        "text": hint.text,
        "when": when_of(hint, index.patterns),
        "author": hint.author,
        "written": hint.written,
    }
    known |= {"until": hint.until, "replaces": hint.replaces, "by": decided.by, "why": decided.why}
    ended = 0 < hint.until <= time.time()
    known["state"] = "rejected" if decided.on else "ended" if ended else "shown"
    return known | {"wording": hint.wording, "review": asks}


def _state(index: LoreIndex, item: MemoryItem) -> str:
    if index.hides(item):
        return f"corrected by {index.hints.replaced[item.id]}" if item.id in index.hints.replaced else "hidden"
    return {True: "approved", False: "proposed", None: "shown"}[index.vouched(item)]


_TIMES = ("written", "until", "confirmed")
_COLUMNS: Columns = {
    "ID": lambda row: row["id"][:12],
    "~TEXT": itemgetter("text"),
    "~WHEN": itemgetter("when"),
    "BY": lambda row: row["author"] or "-",
    ">AGE": lambda row: f"{max(0.0, time.time() - row['written']) / _DAY_SECONDS:.0f} d" if row["written"] else "-",
    "UNTIL (UTC)": lambda row: moment(row["until"]),
    "STATE": itemgetter("state"),
    "~REVIEW": lambda row: row["review"] or "-",
}
