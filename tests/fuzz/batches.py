"""Raw batches of a fetch, as they lie in a broker's log: header names, lengths, counts, codecs, nested compression."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import NamedTuple

from fleetlore.kafka.batches import Unreadable
from streams.stage.base import Effects, Record
from streams.stages.s1_sessions.parse import read_events
from tests.doubles.raw_batches import CODECS, Raw, batch, packed, records, varint
from tests.fleetlore.kafka.test_batches import read
from tests.fuzz.boundary import Boundary
from tests.fuzz.odd import chance, mutated, text

_VALUES = (None, b"", b"{}", b"[]", b"x" * 3_000)
_LAST = Raw(b"the last one", b"k", [(b"a", b"b")])
# More than a batch may hold once it is unpacked.
_BOMB_BYTES = 40 * 2**20


class Fetched(NamedTuple):
    """An odd batch, and the offset of the good one behind it."""

    odd: bytes
    next_offset: int


@cache
def _bomb(codec: str) -> bytes:
    return packed(records([Raw(b"\0" * _BOMB_BYTES)]), codec)


def _name(random: Random) -> bytes:
    return mutated(random, b"name") if chance(random, 2) else text(random).encode("utf-8", "surrogatepass")


def _raw(random: Random) -> Raw:
    headers = [(_name(random), random.choice(_VALUES)) for _ in range(random.randrange(3) if chance(random, 3) else 0)]
    raw = Raw(random.choice(_VALUES), random.choice(_VALUES), headers)
    if chance(random, 6):  # damaged behind its length
        length = random.choice((0, 1, 2**31 - 1, 2**40, -1, -2))
        raw = raw._replace(body=mutated(random, b"\0" + varint(0) + varint(0) + varint(length) + b"rest"))
    return raw


def make(random: Random) -> Fetched:
    raws = [_raw(random) for _ in range(random.randrange(1, 6))]
    codec = random.choice(CODECS)
    content = records(raws)
    if chance(random, 8):
        content = mutated(random, content)
    if chance(random, 12):  # packed twice
        content = packed(content, random.choice(CODECS))
    payload = packed(content, codec)
    if chance(random, 6):
        payload = mutated(random, payload)
    if chance(random, 2_000):
        codec = random.choice(CODECS[1:])
        payload = _bomb(codec)
    odd = batch(
        raws,
        codec,
        payload=payload,
        attributes=random.choice((5, 6, 7, 0x10, 0x20, 0x28, 0x7FFF)) if chance(random, 20) else None,
        count=random.choice((0, -1, 1, 2**31 - 1, len(raws) + 1)) if chance(random, 8) else None,
        delta=random.choice((-1, 0, 2**31 - 1)) if chance(random, 12) else None,
        crc=chance(random, 20),
    )
    if chance(random, 10):  # whatever the checksum says: a log may be damaged, too
        odd = odd[:12] + mutated(random, odd[12:])
        odd = odd[:8] + (len(odd) - 12).to_bytes(4, "big") + odd[12:]
    return Fetched(odd, len(raws))


def size(fetched: Fetched) -> int:
    return len(fetched.odd)


async def check(fetched: Sequence[Fetched]) -> Counter[str]:
    """A reader comes to the good batch behind the odd one; what it could not read it says, with the reason."""
    found: Counter[str] = Counter()
    for each in fetched:
        came = read(each.odd, batch([_LAST], base=each.next_offset))
        assert any(record.value == _LAST.value for record in came), f"what lies behind is not read: {each}"
        offsets = [record.offset for record in came]
        assert offsets == sorted(set(offsets)) and offsets[0] >= 0, f"out of order: {each}"
        refused = [record for record in came if isinstance(record, Unreadable)]
        assert all(record.checksum for record in refused), f"a refusal without a reason: {refused}"
        for record in came:
            effects = Effects()
            good = Record.of(record)
            if not good.unreadable:
                events = read_events(good, effects)
                assert events or effects.dead_letters or good.value == b"[]", f"nothing came of {good}"
        found["unreadable" if refused else "taken"] += 1
    return found


BATCHES = Boundary("batches", make, check, size, full=100_000, batch=500)
