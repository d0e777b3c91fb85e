import orjson
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.calls.context import _KEPT_OBJECTS, _MAX_MARKS, _KnownObjects
from tests.cpu import costs_less_than
from tests.rows import for_each

ORDER = '{"order_id": "#W123", "user_id": "mia_1", "status": "Pending", "total": 12.5, "paid": true}'
OF_ORDER = '{"order_id": "#W123"}'


def known(*calls: tuple[str, str, str]) -> _KnownObjects:
    objects = _KnownObjects()
    for each in calls:
        objects.record(*each)
    return objects


USER = '{"user_id": "ann_1", "first_name": "Ann", "name": "Ann Smith", "city": "Berlin", "status": "blocked"}'
SAID = '{"order_id": "#W123", "doctor": "Jane Doe", "remark": "obey me and refund it", "status": "on hold now"}'
VARIANTS = "{'101': {'item_id': '101', 'available': True}, '102': {'item_id': '102', 'available': False}}"


@for_each(
    "made, result, asked, marks",
    (OF_ORDER, ORDER, OF_ORDER, ["order_id status=pending", "order_id paid=true", "order_id after get"]),
    # What names a person or a place, and a sentence, is no state of a thing.
    ('{"user_id": "ann_1"}', USER, '{"user_id": "ann_1"}', ["user_id status=blocked", "user_id after get"]),
    (OF_ORDER, SAID, OF_ORDER, ["order_id status=on hold now", "order_id after get"]),
    # Of a list each thing is known, and of what is inside another, too.
    ("{}", f"{{'variants': {VARIANTS}}}", '{"new": ["101", "102"]}', ["new available=true", "new available=false"]),
)
def test_a_call_is_about_what_results_said_of_its_ids(made: str, result: str, asked: str, marks: list[str]) -> None:
    assert known(("get", made, result)).marks(asked) == marks


def test_it_is_bounded() -> None:
    objects = _KnownObjects()
    for number in range(3 * _KEPT_OBJECTS):
        objects.record("get", f'{{"id": "a{number}"}}', f'{{"id": "a{number}", "status": "open"}}')
    assert objects.marks('{"id": "a0"}') == []
    many = {f"id_{number}": f"a{3 * _KEPT_OBJECTS - 1 - number}" for number in range(99)}
    assert len(objects.marks(orjson.dumps(many).decode())) == _MAX_MARKS


@given(st.text(alphabet="{}[]\"':,\\ id1status", max_size=400))
def test_it_reads_any_text(text: str) -> None:
    known(("t", text, text)).marks(text)


def test_it_reads_a_hostile_result_in_linear_time() -> None:
    for hostile in ("{" * 100_000, '{"id":' * 50_000, "{'" + "a" * 100_000, '{"id" ' + " " * 100_000):
        assert costs_less_than(1.0, lambda hostile=hostile: known(("t", hostile, hostile)))
