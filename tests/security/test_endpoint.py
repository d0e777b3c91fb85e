"""Half-open requests take no more than their places and are given up; probes are answered beside them."""

from __future__ import annotations

import socket
import threading
import urllib.request

from prometheus_client import CollectorRegistry

from sinks.health_endpoint import MAX_CONNECTIONS, Endpoint, Readiness


def test_half_open_requests_take_no_more_than_their_places() -> None:
    with Endpoint(CollectorRegistry(), Readiness(), "test", "127.0.0.1", 0, request_seconds=0.1) as endpoint:
        before = threading.active_count()
        half_open = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(100)]
        for each in half_open:
            each.settimeout(5)
        # Each is closed by the server, at once where there is no place, else when its time is up.
        assert all(_is_closed(each) for each in half_open)
        assert threading.active_count() <= before + 2 * MAX_CONNECTIONS + 2
        with urllib.request.urlopen(f"{endpoint.url}/livez", timeout=5) as answer:
            assert answer.status == 200


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    finally:
        connection.close()
