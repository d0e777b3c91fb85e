"""What a session teaches quotes no end user of it, in whichever field and spelling."""

from __future__ import annotations

from typing import Any

import pytest

from models.memory.candidate import Candidate, origin
from models.memory.identities import identities, without_identities
from tests.build import call, trajectory
from tests.cpu import costs_less_than

MAIL = "jane.doe@mail.example.org"


def taught(session: str, **fields: Any) -> Candidate:
    """A contribution with these fields, as a session teaches it whose call holds the text."""
    held = trajectory(call("crm", session))
    texts: dict[str, Any] = {"title": "how to", "calls": ("crm(look up)",), "was": ("a",), "now": ("b",)}
    made = Candidate(**origin(held), item_id="item1", kind="strategy", side="success", **(texts | fields))
    [told] = without_identities([made], held)
    return told


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("was", (f"to={MAIL}",), ("to=<email>",)),
        ("now", (f"to={MAIL}", "b"), ("to=<email>", "b")),
        ("calls", (f"send({MAIL})",), ("send(<email>)",)),
        ("title", f"write to {MAIL}", "write to <email>"),
        ("description", MAIL, "<email>"),
        ("content", MAIL, "<email>"),
        ("when", MAIL, "<email>"),
    ],
)
def test_no_field_quotes_an_identity_though_the_others_quote_none(field: str, value: object, told: object) -> None:
    assert getattr(taught(f"send to {MAIL}", **{field: value}), field) == told


@pytest.mark.parametrize(
    ("session", "quoted", "told"),
    [
        ("pay 4111 1111 1111 1111", "order 4111 1111 1111 1111", "order <card>"),
        ("pay 4111 1111 1111 1111", "pay-4111111111111111", "pay-<card>"),
        ("pay 4111 1111 1111 1111", "n.4111111111111111", "n.<card>"),
        ("call +44 20 7946 0958", "call-442079460958", "call-<phone>"),
        ("host 93.184.216.34", "version 93.184.216.34", "version <ip address>"),
        ("host 93.184.216.34", "host/93.184.216.34", "host/<ip address>"),
        ("host 93.184.216.34", "host==93.184.216.34", "host==<ip address>"),
        ("host 93.184.216.34", "93.184.216.34.foo", "<ip address>.foo"),
        ("CF RSSMRA85T10A562S", "cf rssmra85t10a562s", "cf <national id>"),
        (f"send to {MAIL}", f"{'x' * 9_949} {MAIL}", f"{'x' * 9_949} <email>"),
    ],
    ids=range(10),
)
def test_an_identity_is_masked_where_it_is_quoted_otherwise(session: str, quoted: str, told: str) -> None:
    assert taught(session, calls=(quoted,)).calls == (told,)


def test_a_long_word_with_hyphens_beside_a_person_is_read_once() -> None:
    text = f'{{"email": "{MAIL}"}} {"a-" * 4_000}'
    assert set(identities([text])) == {MAIL}
    assert costs_less_than(0.2, lambda: identities([text]))  # 0.5 s where each part of the word is read to its end
