"""No end user's identity becomes lore: found by form, by name of its field and in the record of a person."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.runs import read_runs
from models.memory.candidate import Candidate, origin
from models.memory.identities import identities, replacing, without_identities
from streams.offline.memory_pipeline import run_logs
from tests.build import call, trajectory
from tests.cpu import costs_less_than
from tests.rows import for_each

# Of customer service: what names a person there, by its form alone. The masking knows none of these.
FORMS = re.compile(
    r"[\w.+-]+@[\w-]+\.[\w.-]+\w|\b[a-z]+_[a-z]+_\d{4}\b|#W\d{7}\b|\b(?:credit_card|paypal|gift_card|certificate)_\d{5,8}\b"
)
LOGS = Path(__file__).parents[4] / "shared" / "data" / "smoke" / "tau1"


@for_each(
    "text, value, instead",
    # Of each form one: tests/security/test_personal.py holds them to a corpus.
    ("write to jane.doe+x@mail.example.co.uk today", "jane.doe+x@mail.example.co.uk", "<email>"),
    ("call +44 20 7946 0958 now", "+44 20 7946 0958", "<phone>"),
    ("paid with 4111 1111 1111 1111", "4111 1111 1111 1111", "<card>"),
    ("to GB29 NWBK 6016 1331 9268 19", "GB29 NWBK 6016 1331 9268 19", "<iban>"),
    ("CF RCCMNL83S18D969H", "RCCMNL83S18D969H", "<national id>"),
    ('{"first_name": "Mei", "zip": "80217"}', '"first_name":"Mei"', '"first_name":"<first name>"'),
    ("from 8.8.8.8 at noon", "8.8.8.8", "<ip address>"),
    ('{"user_id": "mia_li_3668"}', "mia_li_3668", "<user id>"),
    ('{"userId":"u-1234","x":1}', "u-1234", "<userid>"),
    ('{"first_name": "Mia", "last_name": "Lindqvist"}', "Mia Lindqvist", "<name>"),
    ('{"zip": "78750", "city": "Austin', "78750", "<zip>"),
    ('{"orders": ["#W9348897", "#W1111111"]}', "#W1111111", "<orders>"),
    ('{"shipping_address": "1 Long Lane"}', "1 Long Lane", "<shipping address>"),
    ('{"billing_street": "Long Lane"}', "Long Lane", "<billing street>"),
    ('{"city": "Bad Tölz"}', "Bad Tölz", "<city>"),
    ('{"name": "Jane Doe"}', "Jane Doe", "<name>"),
    ('{"passenger": "wilhelmina"}', "wilhelmina", "<passenger>"),
    ('{"recipient": "Jo Smith", "contact": "Ann"}', "Jo Smith", "<recipient>"),
    ('{"primaryPhysician": "jane_doe"}', "jane_doe", "<primaryphysician>"),
    ('{"to": "jane_doe_1984"}', "jane_doe_1984", "<to>"),
    ('{"owner": "Jane Doe"}', "Jane Doe", "<owner>"),
    ('"arguments": "{"reservation_id": "HATHAT"}"', "HATHAT", "<reservation id>"),
    ('{"salary": 85000}', "85000", "<salary>"),
    ('{"email": "a@b.example", "methods": {"credit_card_4421486": {}}}', "credit_card_4421486", "<id>"),
)
def test_an_identity_is_found(text: str, value: str, instead: str) -> None:
    assert identities([text]).get(value) == instead


@for_each("field, value",
    ("religion", "muslim"), ("ethnicity", "roma"), ("blood_type", "AB-"), ("medical_condition", "hiv_positive"),
    ("marital_status", "divorced"), ("visaType", "asylum_seeker"), ("cancer_stage", "terminal"),
    ("nationality", "german"), ("gender", "nonbinary"), ("twitter", "@janedoe"), ("slack_id", "janedoe"),
    ("github_user", "janedoe"), ("note", "Jane Doe has HIV"), ("comment", "she is pregnant"),
    ("subject_line", "Termination of Jane Doe"), ("guest_list", "jane_doe"),
)  # fmt: skip
def test_a_field_about_health_belief_or_origin_or_of_free_text_tells_no_value(field: str, value: str) -> None:
    text = f'{{"{field}":"{value}","room":"R-2041"}}'
    replaced = replacing(identities([text]))
    assert value not in replaced(text)
    assert (field in ("note", "comment", "subject_line", "guest_list")) == ("R-2041" in replaced("R-2041"))


@given(
    st.sampled_from(["", "primary_", "old_"]),
    st.sampled_from(["patient", "employee", "payee", "buyer", "applicant", "guardians", "patientId", "case_number"]),
    st.text("abz019_-. ", min_size=4, max_size=40),
)
def test_a_field_that_names_a_person_or_an_account_tells_no_value(word: str, field: str, value: str) -> None:
    replaced = replacing(identities([f'{{"{word}{field}": "{value}"}}']))
    assert value not in replaced(f"update({value})")


@for_each(
    "text",
    "git clone git@github.com failed with exit code 128",
    "order 4111 1111 1111 1112 has no such sum",
    "torch 2.10.0 at 127.0.0.1:8080 and 10.0.0.7 and ::1, list[::2], list[1::2]",
    "Error 1146 (42S02): Table 'shop.users' doesn't exist at 2024-05-20 12:00:01.123456",
    "def f(x: int) -> int:  # see PEP 484, 0x7ffdeadbeef, sha256:9f86d081884c7d659a2feaa0c55ad015",
    'SELECT "name", "title" FROM "users" WHERE "users"."id" = 12345678',
    '{"name": "products-eu", "contacts": 3}',
    '{"condition": "amount > 5", "notebook": "sales", "commented": "yes", "slack_channel": "ops"}',
    '{"orientation": "landscape", "topic": "religion", "columns": ["gender", "note"]}',
    '{"patient_status": "admitted", "employee_type": "contractor", "template": "letter_2024"}',
    '{"from": "products_eu", "to": "2024-05-01T00:00", "owner": "octocat", "driver": "pg", "host": "db-eu-1"}',
    '{"table": "patients", "column": "diagnosis", "tool": "find_patient", "name": "orders_2024"}',
    '{"path": "/srv/app", "flight_number": "HAT069", "date": "2024-05-20", "amount": 1234567}',
)
def test_what_names_nobody_is_left(text: str) -> None:
    assert not identities([text])


@pytest.mark.real_data
@pytest.mark.skipif(not LOGS.exists(), reason=f"no {LOGS}")
async def test_no_lore_of_customer_service_quotes_a_customer() -> None:
    """Beside it `python -m benchmarks.security --logs FOLDER` counts the same in all logs."""
    run = await run_logs(read_runs(LOGS), seed=0, learn=True)
    texts = [f"{each.template} {each.shape}" for each in run.patterns]
    for each in run.items:
        texts.append("\n".join((each.title, each.description, each.content, each.when, *each.was, *each.now)))
    assert len(texts) > 20 and not [text for text in texts if FORMS.search(text)]


MAIL = "jane.doe@mail.example.org"


def taught(session: str, **fields: Any) -> Candidate:
    """A contribution with these fields, as a session teaches it whose call holds the text."""
    held = trajectory(call("crm", session))
    texts: dict[str, Any] = {"title": "how to", "calls": ("crm(look up)",), "was": ("a",), "now": ("b",)}
    made = Candidate(**origin(held), item_id="item1", kind="strategy", side="success", **(texts | fields))
    [told] = without_identities([made], held)
    return told


@for_each(
    "field, value, told",
    ("was", (f"to={MAIL}",), ("to=<email>",)),
    ("now", (f"to={MAIL}", "b"), ("to=<email>", "b")),
    ("calls", (f"send({MAIL})",), ("send(<email>)",)),
    ("title", f"write to {MAIL}", "write to <email>"),
    ("description", MAIL, "<email>"),
    ("content", MAIL, "<email>"),
    ("when", MAIL, "<email>"),
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
