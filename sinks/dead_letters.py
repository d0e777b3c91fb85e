"""Dead letters: the untouched bytes of what could not be processed, and why, in headers."""

from __future__ import annotations

from hashlib import sha256

# The original still lies in the log at the place the headers name; a copy of megabytes would only break the producer.
MAX_VALUE_BYTES = 256 * 1024
MAX_DETAIL = 500


def dead_letter_headers(
    *, topic: str, partition: int, offset: int, stage: str, reason: str, detail: str, value: bytes
) -> list[tuple[str, bytes]]:
    """Headers in the spirit of Kafka Connect's: where it lay, which stage gave up, and why."""
    return [
        ("dlq.topic", topic.encode()),
        ("dlq.partition", b"%d" % partition),
        ("dlq.offset", b"%d" % offset),
        ("dlq.stage", stage.encode()),
        ("dlq.reason", reason.encode()),
        ("dlq.detail", detail[:MAX_DETAIL].encode("utf-8", "replace")),
        ("dlq.bytes", b"%d" % len(value)),
        ("dlq.sha256", sha256(value).hexdigest().encode()),
    ]


def dead_letter_value(value: bytes) -> bytes:
    """The bytes to keep: all of them up to `MAX_VALUE_BYTES`."""
    return value[:MAX_VALUE_BYTES]
