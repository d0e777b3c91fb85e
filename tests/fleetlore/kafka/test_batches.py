"""A record that cannot be read costs no other one, and no more memory than its limit."""

import gc
import os
import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition, codec
from aiokafka.consumer import consumer, fetcher
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.errors import ConfigError
from fleetlore.kafka import batches
from fleetlore.kafka.batches import MOST_BATCH_BYTES, Unreadable, _Batches, _Records, readable
from tests.doubles.raw_batches import CODECS, Raw, batch, packed, records, varint
from tests.rows import for_each

TP = TopicPartition("fleetlore.acme.events", 3)
ODD = Raw(b"odd", b"key", [(b"\xff\xfe", b"1"), (b"fine", None)])
GOOD = Raw(b"good", b"k", [(b"a", b"b")])


def read(*fetched: bytes, offset: int = 0, most_fetches: int = 100) -> list[ConsumerRecord]:
    """Every record of a log that consists of these batches, fetched as aiokafka does."""
    found: list[ConsumerRecord] = []
    still = 0  # fetches without an advance; a batch whose checksum fails is fetched again once
    for _ in range(most_fetches):
        bases = [struct.unpack_from(">q", each)[0] for each in fetched]
        served = fetched[max(index for index, base in enumerate(bases) if base <= offset or not index) :]
        fetch: Any = _Records(TP, _Batches(b"".join(served)), None, offset, None, None, True, 1)
        found += list(fetch)
        still = still + 1 if fetch.next_fetch_offset == offset else 0
        if still == 2:
            break
        offset = fetch.next_fetch_offset
    return found


def shape(found: Sequence[ConsumerRecord]) -> list[tuple[int, bool]]:
    return [(record.offset, not isinstance(record, Unreadable)) for record in found]


@for_each("name", *CODECS)
def test_a_header_that_is_not_utf8_costs_its_record_alone(name: str) -> None:
    found = read(batch([GOOD, ODD, GOOD, ODD, GOOD], name), batch([GOOD], name, base=5))
    assert shape(found) == [(0, True), (1, False), (2, True), (3, False), (4, True), (5, True)]
    assert {(each.key, each.value, each.headers) for each in readable(found)} == {(b"k", b"good", (("a", b"b"),))}
    odd = found[1]
    assert (odd.topic, odd.partition, odd.key, odd.value) == (*TP, b"key", b"odd")
    assert odd.headers == (("\\xff\\xfe", b"1"), ("fine", None)) and "not UTF-8" in odd.checksum


def test_a_record_whose_inside_is_damaged_keeps_its_raw_bytes() -> None:
    body = b"\0" + varint(0) + varint(1) + varint(1_000_000) + b"rest"
    found = read(batch([GOOD, Raw(body=body), GOOD]))
    assert shape(found) == [(0, True), (1, False), (2, True)]
    assert found[1].value == body


def test_behind_a_wrong_length_the_rest_of_the_batch_is_one_refusal() -> None:
    content = records([GOOD]) + varint(1 << 40) + b"rest"
    found = read(batch([GOOD] * 4, payload=content), batch([GOOD], base=4))
    assert shape(found) == [(0, True), (3, False), (4, True)]
    assert "from 1 to 3" in found[1].checksum


@for_each(
    "damaged, why",
    (batch([GOOD] * 3, attributes=4, payload=b"no zstd"), "zstd"),
    (batch([GOOD] * 3, attributes=2, payload=b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + struct.pack(">i", -4)), "-4 bytes"),
    (batch([GOOD] * 3, attributes=6), "codec number 6"),
    (batch([GOOD] * 3, crc=1), "checksum"),
    (batch([GOOD] * 3, count=-1), "counts -1"),
    (batch([GOOD] * 3, count=0), "counts 0"),
    (struct.pack(">qi", 0, 20) + b"\0\0\0\0\2" + b"\0" * 15, "32 bytes"),
    (struct.pack(">qi", 0, -5), "no batch"),
)
def test_a_damaged_batch_is_one_refusal_and_the_next_one_is_read(damaged: bytes, why: str) -> None:
    found = read(damaged, batch([GOOD, GOOD], base=3))
    assert shape(found)[1:] == [(3, True), (4, True)]
    [refused] = found[:1]
    assert isinstance(refused, Unreadable) and refused.offset in (0, 2) and why in refused.checksum


def test_a_checksum_that_fails_once_is_fetched_again() -> None:
    fetch: Any = _Records(TP, _Batches(batch([GOOD], base=77, crc=5)), None, 77, None, None, True, 1)
    assert list(fetch) == [] and fetch.next_fetch_offset == 77
    assert shape(read(batch([GOOD], base=77))) == [(77, True)]


def test_offsets_of_another_batch_move_no_position() -> None:
    body = b"\0" + varint(0) + varint(1 << 40) + varint(-1) + varint(-1) + varint(0)
    found = read(batch([GOOD, Raw(body=body), GOOD]), batch([GOOD], base=3))
    assert shape(found) == [(0, True), (1, False), (2, True), (3, True)]
    assert shape(read(batch([GOOD], delta=-1_000), batch([GOOD], base=1))) == [(0, True), (1, True)]
    assert shape(read(batch([GOOD], delta=1_000), batch([GOOD], base=1))) == [(0, True), (1, True)]


def test_a_control_batch_that_holds_no_marker_ends_no_transaction() -> None:
    for content in (b"", b"\0", varint(3) + b"\0\0\0"):
        control = batch([GOOD], attributes=0x20 | 0x10, payload=content)
        assert shape(read(control, batch([GOOD], base=1))) == [(1, True)]


def test_messages_of_the_format_before_kafka_011_are_refused() -> None:
    inner = struct.pack(">bbq", 1, 0, 7) + struct.pack(">ii", -1, 50) + b"x" * 50
    inner = struct.pack(">I", zlib.crc32(inner)) + inner
    found = read(struct.pack(">qi", 0, len(inner)) + inner, batch([GOOD], base=1))
    assert shape(found) == [(0, False), (1, True)] and "before 0.11" in found[0].checksum


@pytest.mark.long
@for_each("name", *CODECS[1:])
def test_a_batch_that_unpacks_to_gigabytes_is_refused_within_the_limit(name: str) -> None:
    bomb = batch([Raw(b"0" * (3 * MOST_BATCH_BYTES))], name)
    after = batch([GOOD], name, base=1)
    gc.disable()  # a cycle would keep the buffer until the collector comes by
    tracemalloc.start()
    try:
        for _ in range(3):
            found = read(bomb, after)
            assert shape(found) == [(0, False), (1, True)] and "unpacked" in found[0].checksum
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert now < MOST_BATCH_BYTES // 4 and peak < 2 * MOST_BATCH_BYTES


@for_each("name", *("none", "zstd"))
def test_a_batch_of_a_million_empty_records_is_refused(name: str) -> None:
    found = read(batch([], name, payload=packed(b"\x0c\0\0\0\1\1\0" * 1_000_000, name), delta=999_999, count=1_000_000))
    assert shape(found) == [(999_999, False)] and "too many" in found[0].checksum


def test_many_batches_that_unpack_to_much_are_not_given_at_once() -> None:
    each = MOST_BATCH_BYTES // 5
    log = [batch([Raw(b"0" * each)], "zstd", base=number) for number in range(20)]
    first = list(_Records(TP, _Batches(b"".join(log)), None, 0, None, None, True, 1))
    assert sum(len(record.value or b"") for record in first) <= MOST_BATCH_BYTES // 2
    assert shape(read(*log)) == [(number, True) for number in range(20)], "the rest is fetched again"


def test_a_codec_that_is_not_installed_loses_nothing_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    content = batch([GOOD], "zstd")
    monkeypatch.setattr(codec, "cramjam", None)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"fleetlore\.acme\.events .*zstd.*pip install 'fleetlore\[codecs\]'"):
            read(content)
    assert shape(read(batch([GOOD], "gzip"))) == [(0, True)]


raws = st.builds(
    Raw,
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=8),
    st.lists(st.tuples(st.binary(max_size=4), st.none() | st.binary(max_size=4)), max_size=3),
    st.none(),
)


def is_text(raw: Raw) -> bool:
    try:
        return all(name.decode() is not None for name, _ in raw.headers)
    except UnicodeDecodeError:
        return False


@given(st.lists(raws, min_size=1, max_size=8), st.sampled_from(CODECS))
def test_every_record_is_given_once_whole_or_refused(sent: list[Raw], name: str) -> None:
    found = read(batch(sent, name))
    assert shape(found) == [(number, is_text(raw)) for number, raw in enumerate(sent)]
    assert [(each.key, each.value) for each in found] == [(raw.key, raw.value) for raw in sent]
    for each, raw in zip(found, sent, strict=True):
        assert [content for _, content in each.headers] == [content for _, content in raw.headers]


@pytest.mark.slow
def test_the_parser_in_python_is_read_the_same_way() -> None:
    """aiokafka uses it on platforms without a wheel."""
    if os.environ.get("AIOKAFKA_NO_EXTENSIONS"):
        pytest.skip("this is that run")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", __file__]
    environ = {**os.environ, "AIOKAFKA_NO_EXTENSIONS": "1"}
    done = subprocess.run([*command, "-k", "not gigabytes"], env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3_000:]


def test_the_classes_of_aiokafka_that_others_use_are_left_as_they_are() -> None:
    assert fetcher.MemoryRecords is not batches._Batches and consumer.Fetcher is not batches._Fetcher
