import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.fingerprint.value_form import MAX_CHARACTERS, MAX_PARTS, parts_of, value_form, values_of


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ("#W9502127", "#a9999999"),
        ("mia_li_3668", "a_a_9999"),
        ("2024-05-22", "9999-99-99"),
        ("Daiki", "a"),
        ("", None),
        ("word " * MAX_PARTS, None),
        ("x" * (MAX_CHARACTERS + 1), None),
        (12.5, "number"),
        (True, "true"),
        (None, "null"),
        ([], "[]"),
        (["6259501109", "7958300294"], "[9999999999]"),
        (["a", "1", "b2"], None),
        ({"id": 1}, None),
        ([{"id": 1}], None),
    ],
)
def test_letters_and_digits_are_classes_and_all_else_stands(value: object, form: str | None) -> None:
    assert value_form(value) == form


@given(st.text(max_size=MAX_CHARACTERS))
def test_values_of_one_form_have_as_many_parts(text: str) -> None:
    form = value_form(text)
    assert (form is None) == (parts_of(text) is None)
    if form is not None:
        assert len(parts_of(form) or ()) == len(parts_of(text) or ())


def test_only_an_object_has_values_by_name() -> None:
    assert values_of('{"order_id": "#W1"}') == {"order_id": "#W1"}
    assert values_of("SELECT 1") == values_of('["a"]') == values_of('{"cut') == {}
