"""Half-open requests use a bounded number of connections and time out, while probes are answered."""

import socket
import threading
import time
import urllib.request

import pytest
from prometheus_client import CollectorRegistry

from benchmarks.security.half_open import PROBES, probed
from sinks.health_endpoint import MAX_CONNECTIONS, Endpoint, Readiness


def test_half_open_requests_take_no_more_than_their_places() -> None:
    with Endpoint(CollectorRegistry(), Readiness(), "test", "127.0.0.1", 0, request_seconds=0.1) as endpoint:
        before = threading.active_count()
        half_open = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(100)]
        for each in half_open:
            each.settimeout(120)
        # Each is closed by the server, at once where there is no place, else when its time is up.
        assert all(_is_closed(each) for each in half_open)
        assert threading.active_count() <= before + 2 * MAX_CONNECTIONS + 2
        with urllib.request.urlopen(f"http://{endpoint.host}:{endpoint.port}/livez", timeout=120) as answer:
            assert answer.status == 200


def test_a_probe_is_answered_while_half_open_requests_hold_every_place() -> None:
    with Endpoint(CollectorRegistry(), Readiness(), "test", "127.0.0.1", 0, request_seconds=600) as endpoint:
        half_open: list[socket.socket] = []
        for _ in range(30):
            half_open += [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(MAX_CONNECTIONS // 4)]
            half_open[-1].sendall(b"GET /livez HT")
            with urllib.request.urlopen(f"http://{endpoint.host}:{endpoint.port}/livez", timeout=120) as answer:
                assert answer.status == 200
        assert not _is_closed(half_open.pop())
        for each in half_open:
            each.close()


@pytest.mark.slow
def test_every_probe_is_answered_beside_250_half_open_connections_a_second() -> None:
    answered, _ = probed("own", before_seconds=1.0)
    assert answered == PROBES


def test_a_request_that_is_sent_by_the_byte_is_given_up() -> None:
    with Endpoint(CollectorRegistry(), Readiness(), "test", "127.0.0.1", 0, request_seconds=0.2) as endpoint:
        before = set(threading.enumerate())
        slow = socket.create_connection(("127.0.0.1", endpoint.port))
        with pytest.raises(OSError):
            while True:
                slow.sendall(b"G")
                time.sleep(0.05)
        slow.close()
        for each in set(threading.enumerate()) - before:
            each.join(120)
            assert not each.is_alive()


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(connection.gettimeout() or 0.1)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    finally:
        connection.close()
