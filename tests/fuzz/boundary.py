"""Define a boundary: where bytes of others come in, how to make odd ones, and what must hold for each of them.

`check` gives inputs to the real code that reads them and returns how each was answered: `taken`, or the reason it was
refused for. Whatever else it raises is a fault of the product.
"""

import asyncio
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from time import thread_time
from typing import Any, NamedTuple

# A batch may take this much CPU time, and this much more for each byte in it. The constants leave
# room for a slow machine, and are far below the time of code whose cost grows with the square of the size.
_SECONDS, _SECONDS_PER_BYTE = 3.0, 20e-6


class Boundary(NamedTuple):
    """One place where bytes come in.

    Attributes:
        check: how each input of a batch was answered, counted. Raises whatever the product raises.
        full: inputs of the long run.
        batch: inputs that are checked together.
    """

    name: str
    make: Callable[[Random], Any]
    check: Callable[[Sequence[Any]], Awaitable[Counter[str]]]
    size: Callable[[Any], int]
    full: int
    batch: int


def answers(boundary: Boundary, inputs: Sequence[Any]) -> Counter[str]:
    """Check a batch: every input is answered, none without a reason, in a time that its size explains."""
    began = thread_time()
    found = asyncio.run(boundary.check(inputs))
    seconds, size = thread_time() - began, sum(map(boundary.size, inputs))
    assert found.total() == len(inputs), f"{len(inputs)} inputs and {found.total()} answers: {found}"
    assert "" not in found, "an input was refused without a reason"
    most = _SECONDS + _SECONDS_PER_BYTE * size
    assert seconds <= most, f"{seconds:.1f} s of CPU time for {len(inputs)} inputs of {size} bytes, at most {most:.1f}"
    return found


def batch_of(boundary: Boundary, seed: str, count: int) -> list[Any]:
    """The inputs of a seed: the same ones each time."""
    random = Random(seed)
    return [boundary.make(random) for _ in range(count)]


def _place(error: BaseException) -> tuple[type, str, int]:
    """The kind of an error, and the line that raised it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return type(error), frame.filename, frame.lineno or 0


def smallest(boundary: Boundary, inputs: Sequence[Any], error: BaseException) -> list[Any]:
    """Leave out of a batch what is not needed for the same error."""

    def fails(some: Sequence[Any]) -> bool:
        try:
            answers(boundary, some)
        except Exception as found:
            return _place(found) == _place(error)
        return False

    left, step = list(inputs), max(1, len(inputs) // 2)
    while step:
        for start in range(0, len(left), step):
            fewer = left[:start] + left[start + step :]
            if fewer and fails(fewer):
                left = fewer
                break
        else:
            step //= 2
    return left
