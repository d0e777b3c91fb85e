import contextlib
import socket

from streams.embedded.broker import free_port, held_port


def test_the_preferred_port_is_taken_if_it_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        assert free_port(taken) not in (0, taken)
        with socket.create_connection(("127.0.0.1", taken)):
            server.accept()[0].close()  # the side that closes first keeps the port for a while
    assert free_port(taken) == taken


def test_two_that_start_at_once_take_different_ports() -> None:
    with contextlib.ExitStack() as stack:
        held: list[socket.socket] = []
        stack.callback(lambda: [each.close() for each in held])
        wanted = free_port()
        assert held_port(wanted, held) == wanted
        assert held_port(wanted, held) not in (0, wanted), "nothing listens yet on the port that the first one took"
        held.pop().close()
        assert held_port(wanted, held) == wanted
