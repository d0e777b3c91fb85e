"""Whether rows answer a question: columns by content, rows as sets, order where it is asked for."""

from benchmarks.living.sql.results import answers, golds, ordered
from tests.rows import for_each


def test_braces_stand_for_any_of_their_columns() -> None:
    text = "SELECT {a.x, a.y} FROM a GROUP BY {};SELECT 1;"
    assert list(golds(text)) == [
        "SELECT a.x FROM a GROUP BY a.x",
        "SELECT a.y FROM a GROUP BY a.y",
        "SELECT a.x, a.y FROM a GROUP BY a.x, a.y",
        "SELECT 1",
    ]


@for_each(
    "gold, found, in_order, right",
    ([("a", 1), ("b", 2)], [(2, "b"), (1, "a")], False, True),  # columns and rows in another order
    ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)], True, False),
    ([("a",), ("b",)], [("a", 7), ("b", 8)], True, True),  # more columns than asked for
    ([("a", 7), ("b", 8)], [("a",), ("b",)], False, False),
    ([(1, 2), (2, 1)], [(1, 1), (2, 2)], False, False),  # the same columns, other rows
    ([(1, 1)], [(1, 2)], False, False),  # one column answers for one
    ([(0.33333,)], [(0.33334,)], False, True),
    ([(1,)], [(1.0,)], False, True),
    ([(None,)], [(None,)], False, True),
    ([("1",)], [(1,)], False, False),
    ([("a",), ("a",)], [("a",)], False, True),
    ([], [], False, True),
    ([], [(1,)], False, False),
)
def test_answers(gold: list[tuple[object, ...]], found: list[tuple[object, ...]], in_order: bool, right: bool) -> None:
    assert answers(gold, found, in_order=in_order) is right


def test_the_order_counts_where_it_is_asked_for() -> None:
    assert ordered("order_by", "the top 3") and ordered("", "Sort them by name.")
    assert not ordered("group_by", "In which borders do they lie?")
