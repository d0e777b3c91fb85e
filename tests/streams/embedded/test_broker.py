from __future__ import annotations

import socket

from streams.embedded.broker import free_port


def test_the_preferred_port_is_taken_if_it_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        assert free_port(taken) not in (0, taken)
        with socket.create_connection(("127.0.0.1", taken)):
            server.accept()[0].close()  # the side that closes first keeps the port for a while
    assert free_port(taken) == taken
