"""One test for all rows of a table: thousands of tests of one line each take longer to collect than to run."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def for_each(names: str, *rows: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Call a test once with each row, and fail with the list of all rows that failed.

    All rows share the fixtures of the test, so use `pytest.mark.parametrize` where a fixture keeps a state.

    Args:
        names: of the arguments, with commas between them. A row of one name is the value itself.
        rows: at least one.
    """
    arguments = names.replace(" ", "").split(",")
    assert rows and not (len(rows) == 1 and isinstance(rows[0], list)), "no row, or a list of all"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        def cases() -> Iterator[tuple[Any, dict[str, Any]]]:
            for row in rows:
                yield row, dict(zip(arguments, row if len(arguments) > 1 else [row], strict=True))

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            with _failures() as note:
                for row, case in cases():
                    with note(row):
                        test(**fixtures, **case)

        @functools.wraps(test)
        async def run_async(**fixtures: Any) -> None:
            with _failures() as note:
                for row, case in cases():
                    with note(row):
                        await test(**fixtures, **case)

        wrapped = run_async if inspect.iscoroutinefunction(test) else run
        signature = inspect.signature(test)
        left = [each for name, each in signature.parameters.items() if name not in arguments]
        wrapped.__signature__ = signature.replace(parameters=left)
        return wrapped

    return decorate


@contextmanager
def _failures() -> Iterator[Callable[[Any], Any]]:
    found: list[tuple[Any, Exception]] = []

    @contextmanager
    def note(row: Any) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            found.append((row, error))

    yield note
    if found:
        listed = "\n".join(f"{row!r}: {type(error).__name__}: {error}" for row, error in found)
        raise AssertionError(f"{len(found)} rows failed:\n{listed}") from found[0][1]
