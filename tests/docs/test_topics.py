"""Hold docs/reference/topics.md to the code: its examples are parsed, its limits are the code's."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any, get_args

from fleetlore.fingerprint.fingerprint import VERSION, pattern_id
from fleetlore.wire import events
from fleetlore.wire.dead_letter import MAX_VALUE_BYTES, RECORD_REFUSED, ROW_REFUSED, UNREADABLE
from fleetlore.wire.events import BATCH_HEADERS, Event
from fleetlore.wire.lore import Level, MemoryItem, Pattern
from fleetlore.wire.stats import withheld
from streams.runtime.bad_records import NOT_LOST
from streams.stage.base import Effects, Record
from streams.stages.s1_sessions.parse import read_events
from tests.build import letter
from tests.read_back import read_back
from tests.rows import for_each

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "topics.md").read_text()


def example(name: str) -> Any:
    match = re.search(rf"<!-- example: {name} -->\n```json\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None
    return json.loads(match[1])


def rows_of(head: str) -> set[str]:
    """First cells, without backticks, of the table whose first column is called `head`."""
    after = PAGE.split(f"\n| {head} |", 1)[1].split("\n\n", 1)[0]
    cells = [line.split("|")[1] for line in after.splitlines()[2:]]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_the_event_is_accepted_in_every_mode() -> None:
    raw = example("event")
    now = 1_772_366_401.0
    parsed = read_back(raw, "default", now)
    assert isinstance(parsed, Event)
    assert (parsed.kind, parsed.sequence) == ("outcome", 3)
    headers = {f"ce_{name}": str(value).encode() for name, value in raw.items() if name != "data"}
    structured, batch, binary = (
        read_events(Record("fleetlore.default.events", 0, 0, None, json.dumps(value).encode(), headers), Effects())
        for value, headers in ((raw, {}), ([raw, raw], dict(BATCH_HEADERS)), (raw["data"], headers))
    )
    assert [each.sequence for each in (*structured, *batch, *binary)] == [3] * 4
    assert structured == binary


@for_each("name, kind", ("pattern", Pattern), ("item", MemoryItem))
def test_lore_is_shown_whole(name: str, kind: type[Pattern] | type[MemoryItem]) -> None:
    shown = example(name)
    lore = kind.from_json(json.dumps(shown).encode())
    assert json.loads(lore.to_json()) == shown


def test_the_tables_name_what_the_code_knows() -> None:
    source = "".join(path.read_text() for floor in ("fleetlore", "streams") for path in (ROOT / floor).rglob("*.py"))
    # A reason is also the first choice or the second of a conditional: InvalidEvent("a" if … else "b", …)
    calls = re.findall(r"InvalidEvent\(\s*((?:\"\w+\"(?: if [^,]*? else )?)+)", source)
    reasons = {reason for call in calls for reason in re.findall(r"\"(\w+)\"", call)}
    assert rows_of("reason") == {*reasons, *NOT_LOST, ROW_REFUSED, RECORD_REFUSED, UNREADABLE}
    assert {name for name, _ in letter(headers={}).headers} == rows_of("header") - {"value", "key", "headers"}
    assert f"up to {MAX_VALUE_BYTES // 1024} KiB of them" in PAGE
    assert rows_of("level") == set(get_args(Level))
    assert rows_of("kind") == {*events.TYPES}


def test_every_data_key_is_described() -> None:
    keys = {
        value
        for name, value in vars(events).items()
        if name.isupper() and str(value).startswith(("gen_ai.", "error.", "fleetlore."))
    }
    assert keys
    assert [key for key in sorted(keys) if f"`{key}`" not in PAGE] == []


def test_the_limits_are_those_of_the_code() -> None:
    assert f"{events.MAX_ID_LENGTH} characters" in PAGE
    assert f"at most {events.MAX_FUTURE_SECONDS:.0f} s ahead" in PAGE
    assert f"up to {events.MAX_EVENTS} events, at most {events.MAX_BYTES // 1024} KiB" in PAGE
    assert f"One event is at most {events.MAX_EVENT_BYTES // 1024} KiB" in PAGE
    assert events.BATCH_TYPE.decode() in PAGE


def test_an_id_is_made_as_the_page_says() -> None:
    parts = ("12", "family", "shell", "PermissionError")
    assert parts[0] == VERSION
    assert pattern_id(*parts[1:]) == hashlib.blake2b("\x1f".join(parts).encode(), digest_size=16).hexdigest()


def test_the_holdout_is_drawn_as_the_page_says() -> None:
    def first_52_bits(session: str, item: str) -> int:
        digest = hashlib.blake2b("\x1f".join(("holdout", session, item)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 12

    pairs = [(f"session-{number}", f"item-{number % 7}") for number in range(200)]
    expected = {each for each in pairs if first_52_bits(*each) < 0.2 * 2**52}
    assert expected == {each for each in pairs if withheld(*each, 0.2)}
    assert 10 < len(expected) < 80
