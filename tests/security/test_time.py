"""No text of others takes a function more than linear time, nor an event more than milliseconds."""

import itertools
import time
from functools import partial

import orjson
import pytest

from benchmarks.security.times import (
    AGENT_SECONDS,
    MAX_EXPONENT,
    READERS,
    WORKER_SECONDS,
    Reader,
    Timed,
    beside,
    first_stage,
    survey,
    text_of_atom,
)
from fleetlore.fingerprint.fingerprint import arguments_text
from fleetlore.kafka.encode import encode_event
from fleetlore.redact.detectors import FORMS
from fleetlore.redact.named_values import NAMED
from fleetlore.redact.redact import redact
from fleetlore.wire.events import RESULT, TOOL, Event
from tests.cpu import costs_less_than
from tests.rows import for_each

# Of 36,000; `python -m benchmarks.security` tries more.
PAIRS = 100
# A neighbour on the same processor slows one survey down; a reader that is slow itself is slow in every try.
TRIES = 3
# Readers took at most 1.1 of their limits beside three busy processes on two cores.
_SLOW = 1.5


@pytest.mark.long
@for_each("reader", *READERS)
def test_time_is_linear_and_bounded(reader: Reader) -> None:
    for _ in range(TRIES):
        found = survey(reader, PAIRS)
        bent = [each for each in found if each.exponent > MAX_EXPONENT]
        if not bent and not is_slow(reader, found[0]):
            return
    pytest.fail(f"bent: {bent[:3]}; slowest: {found[:3]}")


def is_slow(reader: Reader, slowest: Timed) -> bool:
    if reader.limit is None or slowest.seconds <= reader.limit:
        return False
    return beside(reader.run, partial(text_of_atom, slowest.atom, slowest.size)) > _SLOW * reader.limit


@pytest.mark.long
@for_each("sign", "", "-", ": ", ' -p"')
def test_what_a_secret_begins_with_is_read_in_linear_time(sign: str) -> None:
    needles = {needle for *_, forms in FORMS for _, those, _ in forms for needle in those.split("|")}
    needles |= {needle for rule in NAMED for needle in rule.needles}
    begun = {each for needle in needles for each in (sign + needle, needle + sign)}
    assert not [each for each in begun if bends(each)]


def bends(begun: str) -> bool:
    """Whether 16 KB take more than 16 times as long as 2 KB, in each try."""
    return all(_masked_in(begun, 16_384) > max(0.02, 16 * _masked_in(begun, 2_048)) for _ in range(TRIES))


def _masked_in(begun: str, size: int) -> float:
    # The forms of commands are sought only beside such signs.
    text = "".join(contains for contains, *_ in FORMS) + "\n" + (begun * size)[:size]
    began = time.thread_time()
    redact(text)
    return time.thread_time() - began


@for_each("count", 1, 30, 64, 128)
def test_a_record_of_unfinished_here_documents_stalls_no_worker(count: int) -> None:
    numbers = itertools.count()
    took = beside(lambda text: first_stage(text, count), lambda: f"curl {next(numbers)} " + "authorization<<" * 20_000)
    assert took < _SLOW * WORKER_SECONDS


def test_what_is_shared_is_counted_before_it_is_copied() -> None:
    members: list[object] = ["x"]
    for _ in range(40):  # 2^40 members, were it written out
        members = [members, members]

    def write() -> tuple[bytes, str]:
        event = Event("outcome", "default", "agent", "s", 1, 0.0, {TOOL: "t", RESULT: members})
        return encode_event(event), arguments_text(members)

    assert costs_less_than(20 * AGENT_SECONDS, write)
    value, text = write()
    assert "elements cut]" in orjson.dumps(orjson.loads(value)["data"]).decode()
    assert len(text) < 1_000_000
