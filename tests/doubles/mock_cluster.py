"""librdkafka's mock cluster: several Kafka brokers in this process, whose faults can be told (wheel `confluent-kafka`).

It speaks the protocol to any client, groups and commits included, and keeps everything in memory. The wheel gives
Python no access to the faults, so they are called in the C library itself (rdkafka_mock.h). It has no CreateTopics for
aiokafka: create topics here beforehand.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path
from typing import Any

from fleetlore.errors import StackError

_PRODUCER = 0
_ERROR_BYTES = 512


class Request(IntEnum):
    """Kinds of requests that can be made to fail (their API keys)."""

    PRODUCE = 0
    FETCH = 1
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    HEARTBEAT = 12


class Failure(IntEnum):
    """Kafka's error code of the answer to a request."""

    NOT_FORESEEN = -1
    NOT_LEADER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    COORDINATOR_LOADING = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    NOT_ENOUGH_REPLICAS = 19
    INVALID_TIMESTAMP = 32
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE = 45
    UNKNOWN_PRODUCER_ID = 59


def _library() -> Any:
    try:
        import confluent_kafka
    except ImportError:
        raise StackError("the mock cluster is missing; install `confluent-kafka`") from None
    folder = Path(confluent_kafka.__file__).parent
    for found in (*folder.with_name("confluent_kafka.libs").glob("librdkafka*"), *folder.glob(".dylibs/librdkafka*")):
        library = ctypes.CDLL(str(found))
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(library, name).restype = ctypes.c_void_p
        library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        return library
    raise StackError("the wheel of confluent-kafka holds no librdkafka")


class MockCluster:
    """A cluster of brokers, numbered from 1; a context manager. Raises StackError where the wheel is missing."""

    def __init__(self, brokers: int = 3) -> None:
        self._library = library = _library()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        conf = ctypes.c_void_p(library.rd_kafka_conf_new())
        library.rd_kafka_conf_set(conf, b"log_level", b"0", error, _ERROR_BYTES)
        self._client = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, conf, error, _ERROR_BYTES))
        if not self._client:
            raise StackError(f"librdkafka: {error.value.decode()}")
        self._cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(self._client, brokers))
        # A new group's first member waits 3 s for others otherwise. 0 would mean that it waits for ever.
        library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, ctypes.c_int32(100))
        self.address = str(library.rd_kafka_mock_cluster_bootstraps(self._cluster), "ascii")

    def create_topic(self, name: str, partitions: int, replication: int = 1) -> None:
        self._ask(self._library.rd_kafka_mock_topic_create, name.encode(), partitions, replication)

    def down(self, broker: int) -> None:
        """Close its connections and take no new ones."""
        self._ask(self._library.rd_kafka_mock_broker_set_down, broker)

    def up(self, broker: int) -> None:
        self._ask(self._library.rd_kafka_mock_broker_set_up, broker)

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        self._ask(self._library.rd_kafka_mock_partition_set_leader, topic.encode(), partition, broker)

    def move_coordinator(self, group: str, broker: int) -> None:
        self._ask(self._library.rd_kafka_mock_coordinator_set, b"group", group.encode(), broker)

    def fail_next(self, request: Request, failures: Iterable[Failure]) -> None:
        """Answer the next requests of a kind, to whichever broker, with these failures, one each."""
        codes = [int(failure) for failure in failures]
        array = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(request), ctypes.c_size_t(len(codes)), array
        )

    def close(self) -> None:
        if self._client:
            self._library.rd_kafka_mock_cluster_destroy(self._cluster)
            self._library.rd_kafka_destroy(self._client)
            self._client = ctypes.c_void_p()

    def __enter__(self) -> MockCluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _ask(self, function: Any, *arguments: Any) -> None:
        code = function(self._cluster, *arguments)
        if code:
            raise StackError(f"{function.__name__}{arguments}: error {code}")
