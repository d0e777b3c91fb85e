"""No text of others takes a function more than linear time, nor an event more than milliseconds."""

import time

import orjson
import pytest

from benchmarks.security.times import (
    AGENT_SECONDS,
    MAX_EXPONENT,
    READERS,
    WORKER_SECONDS,
    Reader,
    first_stage,
    slowness,
    survey,
)
from fleetlore.emit.encode import encode_event
from fleetlore.fingerprint.fingerprint import arguments_text
from fleetlore.wire.events import RESULT, TOOL, Event

# Of 36,000; `python -m benchmarks.security` tries more.
PAIRS = 100
# A neighbour on the same processor slows one survey down; a reader that is slow itself is slow in every try.
TRIES = 3
# A neighbour that shares the processor's caches costs half again, which no addition shows.
_SLOW = 1.5 * slowness()


@pytest.mark.parametrize("reader", READERS, ids=[reader.name for reader in READERS])
def test_time_is_linear_and_bounded(reader: Reader) -> None:
    for _ in range(TRIES):
        found = survey(reader, PAIRS)
        bent = [each for each in found if each.exponent > MAX_EXPONENT]
        slow = reader.limit is not None and found[0].seconds > reader.limit * max(_SLOW, 1.5 * slowness())
        if not bent and not slow:
            return
    pytest.fail(f"bent: {bent[:3]}; slowest: {found[:3]}")


@pytest.mark.parametrize("count", [1, 30, 64, 128])
def test_a_record_of_unfinished_here_documents_stalls_no_worker(count: int) -> None:
    seconds = []
    for number in range(3):
        began = time.thread_time()
        first_stage(f"curl {number} " + "authorization<<" * 20_000, count)
        seconds.append(time.thread_time() - began)
    assert min(seconds) < WORKER_SECONDS * _SLOW


def test_what_is_shared_is_counted_before_it_is_copied() -> None:
    members: list[object] = ["x"]
    for _ in range(40):  # 2^40 members, were it written out
        members = [members, members]
    seconds = []
    for _ in range(3):  # a collection of all that the tests before it hold takes longer than this
        began = time.thread_time()
        value = encode_event(Event("outcome", "default", "agent", "s", 1, 0.0, {TOOL: "t", RESULT: members}))
        text = arguments_text(members)
        seconds.append(time.thread_time() - began)
    assert min(seconds) < 8 * AGENT_SECONDS * _SLOW
    assert "elements cut]" in orjson.dumps(orjson.loads(value)["data"]).decode()
    assert len(text) < 1_000_000
