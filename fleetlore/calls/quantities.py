"""Name the numbers, lengths and sums of a call, so that two of them can be held to be equal.

`len(item_ids)`, `sum(payments.amount)`, `amount`; and of a thing that an argument names, as an earlier result told it:
`order_id.total`, `len(order_id.items)`. No tool and no field is known beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleetlore.fingerprint.fingerprint import parsed

__all__ = ["KnownQuantities", "Quantity", "is_of_argument"]

Quantity = float | str
_MAX_QUANTITIES = 32
_MAX_TEXT = 64
# Of a session: more are those of a listing, and the newest say most.
_KEPT = 256
_LEAST_ID = 3


class KnownQuantities:
    """What results of a session told of things, by their ids."""

    def __init__(self) -> None:
        self._things: dict[str, dict[str, Quantity]] = {}

    def record(self, result: str) -> None:
        """Take in the result of a call that worked; one that was cut is no JSON, and says nothing."""
        value = parsed(result) if result[:1] in ("{", "[") else None
        for thing in value if isinstance(value, list) else (value,):
            if isinstance(thing, dict):
                told = dict(_quantities(thing))
                id = next((each for each in thing.values() if isinstance(each, str) and len(each) >= _LEAST_ID), None)
                if id is not None:
                    self._things.pop(id, None)
                    self._things[id] = told
        while len(self._things) > _KEPT:
            del self._things[next(iter(self._things))]

    def of(self, values: Mapping[str, object]) -> dict[str, Quantity]:
        """Quantities by name of a call with these arguments, at most `_MAX_QUANTITIES`."""
        found = dict(_quantities(values))
        for name, value in values.items():
            for field, told in self._things.get(value, {}).items() if isinstance(value, str) else ():
                if told != value:  # its id
                    of, _, inner = field.rpartition("(")
                    found[f"{of}({name}.{inner}" if of else f"{name}.{field}"] = told
        return dict(list(found.items())[:_MAX_QUANTITIES])


def is_of_argument(name: str) -> bool:
    """Whether a quantity is of the call itself, and not of a thing that it names."""
    return name.count(".") == name.startswith("sum(")


def _quantities(values: Mapping[str, object]) -> Iterator[tuple[str, Quantity]]:
    for name, value in values.items():
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, int | float):
            yield name, round(float(value), 6)
        elif isinstance(value, str) and 0 < len(value) <= _MAX_TEXT:
            yield name, value
        elif isinstance(value, list):
            yield f"len({name})", float(len(value))
            yield from _sums(name, value)


def _sums(name: str, things: list[object]) -> Iterator[tuple[str, Quantity]]:
    """Of a list of objects, the sum of each field that is a number in all of them."""
    rows = [each for each in things if isinstance(each, dict)]
    for field in rows[0] if rows and len(rows) == len(things) else ():
        numbers = [row.get(field) for row in rows]
        if all(isinstance(each, int | float) and not isinstance(each, bool) for each in numbers):
            yield (
                f"sum({name}.{field})",
                round(float(sum(each for each in numbers if isinstance(each, int | float))), 6),
            )
