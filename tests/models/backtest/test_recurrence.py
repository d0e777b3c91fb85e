from __future__ import annotations

from collections.abc import Callable

from models.backtest.cases import Case
from models.backtest.recurrence import recurrence

MakeCase = Callable[..., Case]
NO_COLUMN = "no such column: 'name'"


def test_errors_recur_only_through_another_agent(make_case: MakeCase) -> None:
    train = [make_case("1", "ann", "cook", ("SELECT name", NO_COLUMN))]
    own = make_case("2", "ann", "cook", ("SELECT name", NO_COLUMN))
    other = make_case("3", "ben", "cook", ("SELECT name FROM x WHERE 1", NO_COLUMN), ("DROP x", "no such table: 'x'"))
    assert recurrence(train, [own]) == {"shop": {"family": 0.0, "class": 0.0, "exact": 0.0}}
    figures = recurrence(train, [other])["shop"]
    assert figures["class"] == 0.5
    assert recurrence(train, [make_case("4", "eve", "cook", ("SELECT 1", None))]) == {
        "shop": {"family": None, "class": None, "exact": None}
    }
