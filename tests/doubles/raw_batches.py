"""Write record batches byte by byte, and give them to a broker as they are: what no client would send."""

import gzip
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

from aiokafka import codec as codecs
from aiokafka.record.util import calc_crc32c, encode_varint

_NOT_LEADER = 6
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Raw(NamedTuple):
    """A record; `body` replaces what is behind its length."""

    value: bytes | None = b"{}"
    key: bytes | None = None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    body: bytes | None = None


def packed(content: bytes, codec: str) -> bytes:
    if codec == "none":
        return content
    if codec == "gzip":
        return gzip.compress(content)
    return bytes(getattr(codecs, f"{codec}_encode")(content))


def varint(value: int) -> bytes:
    written = bytearray()
    encode_varint(value, written.append)
    return bytes(written)


def _field(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def records(raws: Sequence[Raw]) -> bytes:
    """Their bytes, uncompressed."""
    written = b""
    for number, raw in enumerate(raws):
        body = raw.body
        if body is None:
            headers = b"".join(_field(name) + _field(content) for name, content in raw.headers)
            body = b"\0" + varint(0) + varint(number) + _field(raw.key) + _field(raw.value)
            body += varint(len(raw.headers)) + headers
        written += varint(len(body)) + body
    return written


def batch(
    raws: Sequence[Raw],
    codec: str = "none",
    *,
    base: int = 0,
    payload: bytes | None = None,
    attributes: int | None = None,
    delta: int | None = None,
    count: int | None = None,
    crc: int = 0,
    time_ms: int = 1_000,
) -> bytes:
    """A batch of the current format; `crc` is added to the right checksum. tansu keeps the producer's time."""
    content = packed(records(raws), codec) if payload is None else payload
    number = CODECS.index(codec) if attributes is None else attributes
    last = len(raws) - 1 if delta is None else delta
    counted = len(raws) if count is None else count
    checked = struct.pack(">hiqqqhii", number, last, time_ms, time_ms, -1, -1, -1, counted) + content
    head = struct.pack(">ibI", 0, 2, (calc_crc32c(checked) + crc) & 0xFFFFFFFF)
    return struct.pack(">qi", base, len(head) + len(checked)) + head + checked


def produce(addresses: str, topic: str, content: bytes, partition: int = 0) -> tuple[int, int]:
    """Send bytes by the protocol's own request; the leader's error code and the offset that it gave."""
    answers = [_asked(each, topic, content, partition) for each in addresses.split(",")]
    return next((answer for answer in answers if answer[0] != _NOT_LEADER), answers[0])


def _asked(address: str, topic: str, content: bytes, partition: int) -> tuple[int, int]:
    host, _, port = address.rpartition(":")
    body = struct.pack(">hhih", 0, 7, 1, -1) + struct.pack(">hhii", -1, -1, 10_000, 1)
    body += struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">iii", 1, partition, len(content)) + content
    with socket.create_connection((host, int(port)), 30) as link:
        link.sendall(struct.pack(">i", len(body)) + body)
        answer = _exactly(link, struct.unpack(">i", _exactly(link, 4))[0])
    error, offset = struct.unpack_from(">hq", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
    return int(error), int(offset)


def _exactly(link: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = link.recv(count - len(found))
        assert more, "the broker has closed the connection"
        found += more
    return found
