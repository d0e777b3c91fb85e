"""Whatever the bytes are: a value, or one kind of error that every reader expects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fleetlore.refusals import refusals
from fleetlore.wire.decode import json_reader, msgpack_reader
from fleetlore.wire.events import Definitions
from fleetlore.wire.lore import Decision, MemoryItem, Pattern
from fleetlore.wire.trajectory import Judgment, Trajectory
from streams.stage.operators import Erased

ODD = [b"", b"[" * 100_000, b'{"a":' * 100_000, b'"\xff"', b'"\\ud800"', b"\xef\xbb\xbf{}", b"1e9999"]
KINDS = (Pattern, MemoryItem, Decision, Definitions, Judgment, Trajectory)
READERS: list[Callable[[bytes], Any]] = [
    json_reader(dict[str, Any]),
    msgpack_reader(dict[str, Any]),
    *(kind.from_json for kind in KINDS),
]


@pytest.mark.parametrize("number", range(len(ODD)))
@pytest.mark.parametrize("read", READERS)
def test_what_cannot_be_read_raises_one_kind_of_error(read: Callable[[bytes], Any], number: int) -> None:
    with pytest.raises(msgspec.DecodeError):
        read(ODD[number])


def test_an_operators_record_that_is_nested_too_deep_is_counted() -> None:
    before = refusals().get("unreadable_erasures", 0)
    Erased().take("acme", b'{"time": 1, "more": ' + b"[" * 100_000)
    assert refusals()["unreadable_erasures"] == before + 1


@pytest.mark.parametrize("field", ["agents", "support", "last_seen"])
def test_lore_with_a_number_beyond_every_count_is_refused(field: str) -> None:
    item: dict[str, Any] = {"id": "i", "tenant": "t", "kind": "recovery", "title": "", "description": ""}
    item |= {"content": "", "when": "", field: 10**400 if field != "last_seen" else 1e300}
    with pytest.raises(msgspec.DecodeError):
        MemoryItem.from_json(str(item).replace("'", '"'))
