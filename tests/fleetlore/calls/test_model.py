import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from fleetlore.calls.call import MadeCall
from fleetlore.calls.context import CallContext
from fleetlore.calls.document import CALL_BITS, KIND_BITS, MAX_BYTES, Document, Kind, Named, Place, quantised
from fleetlore.calls.model import LEAST_CALLS, CallModel, Expected
from tests.rows import for_each


def document(**fields: Any) -> Document:
    empty = {
        "calls": quantised(np.zeros(2**CALL_BITS, np.float32)),
        "kinds": quantised(np.zeros(2**KIND_BITS, np.float32)),
        "bias": 0.0,
        "tools": {"sql": LEAST_CALLS},
    }
    return Document(**(empty | fields))


MISSING = Named("sql", "no such table", ("car",), failed=9, held=10, agents=4)
KINDS: dict[str, Any] = {
    "kind_texts": (Kind("sql", "syntax error"), Kind("sql", "no such table")),
    "kind_counts": (9, 5),
    "named": (MISSING,),
}


def test_int8_keeps_weights_to_a_part_of_their_block() -> None:
    weights = np.random.default_rng(0).normal(size=2**CALL_BITS).astype(np.float32)
    weights[:256] = 0
    again = quantised(weights).restored(CALL_BITS)
    blocks = np.abs(weights).reshape(-1, 256).max(axis=1).repeat(256)
    assert (np.abs(again - weights) <= blocks / 127 * 0.51 + 1e-6).all()


def test_of_the_greatest_weights_a_share_is_kept() -> None:
    weights = np.random.default_rng(0).normal(size=2**CALL_BITS).astype(np.float32)
    again = quantised(weights, 0.25).restored(CALL_BITS)
    assert abs(np.mean(again != 0) - 0.25) < 0.01
    assert np.abs(weights[again == 0]).max() <= np.abs(weights[again != 0]).min() + 0.05


def test_the_same_document_gives_the_same_bytes() -> None:
    encoded = document(**KINDS).to_bytes()
    assert encoded == document(**KINDS).to_bytes()
    assert Document.from_bytes(encoded).to_bytes() == encoded


@for_each(
    "broken",
    lambda data: b"",
    lambda data: b"{}",
    lambda data: data[: len(data) // 2],
    lambda data: zlib.compress(msgspec.msgpack.encode({"calls": 1})),
    lambda data: zlib.compress(b"\x00" * 50_000_000),
    lambda data: b"x" * (MAX_BYTES + 1),
    lambda data: document(schema=99).to_bytes(),
    lambda data: document(features=99).to_bytes(),
    lambda data: document(kind_counts=(1,)).to_bytes(),
    lambda data: document(calls=quantised(np.zeros(256, np.float32))).to_bytes(),
)
def test_what_is_no_version_is_refused(broken: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ValueError):
        CallModel.from_bytes(broken(document().to_bytes()))


def test_of_a_tool_with_few_calls_nothing_is_said() -> None:
    model = CallModel.from_bytes(document(tools={"sql": LEAST_CALLS - 1}).to_bytes())
    assert model.outlook(MadeCall("sql", "select 1"), CallContext("g")) is None
    assert model.outlook(MadeCall("unknown", "select 1"), CallContext("g")) is None


def test_without_a_threshold_no_call_is_warned_of() -> None:
    outlook = CallModel.from_bytes(document(bias=9.0).to_bytes()).outlook(MadeCall("sql", "x"), CallContext("g"))
    assert outlook is not None
    assert outlook.fails > 0.99
    assert not outlook.warned


def test_at_a_place_that_was_never_learned_calls_are_foreseen_as_at_none() -> None:
    weights = np.random.default_rng(0).normal(size=2**CALL_BITS).astype(np.float32)
    model = CallModel.from_bytes(document(calls=quantised(weights), places={"old": Place(0, {})}).to_bytes())
    call, context = MadeCall("sql", "select name from car"), CallContext("g")
    nowhere, new, empty = (model.outlook(call, context, place) for place in (None, "new", "old"))
    assert new == empty == nowhere


def test_a_name_that_mostly_fails_is_named_where_the_call_holds_it_and_its_place_was_learned() -> None:
    model = CallModel.from_bytes(document(**KINDS).to_bytes())
    call, context = MadeCall("sql", "select 1 from car"), CallContext("g")
    assert model.expected(call, context) == Expected("no such table", ("car",), 9, 10, 4)
    assert not model.expected(call, context, "new").names, "it is missing elsewhere"
    assert not model.expected(MadeCall("sql", "select 1 from cars"), context).names


SYNTAX, NO_TABLE = Expected("syntax error", agents=1), Expected("no such table", agents=1)
UNKNOWN = (Kind("sql", "a", 1), Kind("sql", "b", 1), Kind("sql", "c", 1), Kind("sql", "d", 1))


@for_each(
    "fields, expected",
    ({"kind_counts": (10_000_000, 5)}, SYNTAX),
    ({"kind_counts": (100, 5)}, replace(SYNTAX, other=NO_TABLE)),
    ({"kind_counts": (5, 100)}, replace(NO_TABLE, other=SYNTAX)),
    ({"kind_texts": (), "kind_counts": ()}, Expected("")),
    ({"kind_texts": UNKNOWN, "kind_counts": (5, 5, 5, 5)}, Expected("")),
    ({"kind_texts": (Kind("bash", "syntax error", 1),), "kind_counts": (5,)}, Expected("")),
)
def test_a_kind_without_a_name_is_given_if_it_or_a_pair_is_likely(fields: Any, expected: Expected) -> None:
    model = CallModel.from_bytes(document(**KINDS | fields).to_bytes())
    assert model.expected(MadeCall("sql", "select 1 from cars"), CallContext("g")) == expected


def test_a_name_that_works_at_this_place_is_not_named_there() -> None:
    places = {"garage": Place(20, {"car": (15, 0)}), "office": Place(20, {"car": (0, 4)})}
    model = CallModel.from_bytes(document(**KINDS, places=places).to_bytes())
    call, context = MadeCall("sql", "select 1 from car"), CallContext("g")
    at_garage, at_office = (model.expected(call, context, place) for place in ("garage", "office"))
    assert not at_garage.names
    assert at_office == Expected("no such table", ("car",), 9, 10, 4)


def test_what_failed_in_this_session_is_said_before_what_failed_elsewhere() -> None:
    model = CallModel.from_bytes(document(**KINDS).to_bytes())
    own = [Expected("unknown column", ("model",), tool="sql")]
    assert model.expected(MadeCall("sql", "select model from car"), CallContext("g"), own=own) == own[0]


@for_each("text", "import cars as car", "def car():\n  pass", "car = 1\nprint(car)", "for car in x:")
def test_a_name_that_the_call_itself_defines_is_not_lacking(text: str) -> None:
    model = CallModel.from_bytes(document(**KINDS).to_bytes())
    own = (Expected("name <name> is not defined", ("car",), tool="sql"),)
    for earlier in ((), own):
        assert not model.expected(MadeCall("sql", text), CallContext("g"), own=earlier).names
