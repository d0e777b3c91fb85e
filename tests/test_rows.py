"""A table of rows is one test, which names all rows that failed."""

import inspect

import pytest

from tests.rows import for_each


def test_all_rows_that_fail_are_named() -> None:
    tried = []

    @for_each("number", *range(4))
    def test(number: int, fixture: str) -> None:
        tried.append(number)
        assert number % 2 == 0, "odd"

    assert [*inspect.signature(test).parameters] == ["fixture"]
    with pytest.raises(AssertionError, match=r"2 rows failed:\n1: AssertionError: odd(.|\n)*\n3: AssertionError: odd"):
        test(fixture="x")
    assert tried == [0, 1, 2, 3]


async def test_a_coroutine_fails_too() -> None:
    @for_each("number", 1)
    async def test(number: int) -> None:
        assert number == 2

    with pytest.raises(AssertionError, match="1 rows failed"):
        await test()
    for rows in ((), ([1, 2],)):
        with pytest.raises(AssertionError, match="no row"):
            for_each("number", *rows)
