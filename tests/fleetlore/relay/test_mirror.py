from __future__ import annotations

from random import Random

from aiokafka import ConsumerRecord

from fleetlore.relay.native import _Part


def record(offset: int, key: bytes, value: bytes | None) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, 0, 0, key, value, 0, 0, len(value or b""), ())


def test_from_every_position_it_gives_the_newest_of_each_key_in_order() -> None:
    part, random = _Part(), Random(3)
    log = [(number, b"%d" % random.randrange(40), random.choice((None, b"%d" % number))) for number in range(6_000)]
    for offset, key, value in log:
        part.put(record(offset, key, value))
        part.put(record(offset, key, value))  # what was not taken to the end comes again
    assert part.end == 6_000
    for position in (0, 1, 5_000, 5_990, 6_000):
        newest = {key: (offset, key, value) for offset, key, value in log if offset >= position}
        assert list(part.since(position)) == sorted(newest.values())
    assert len(part._records) < 1_200, "what was replaced is let go"
