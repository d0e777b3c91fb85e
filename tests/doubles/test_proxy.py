"""The proxy slows, breaks and gives back a connection."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.doubles.proxy import Proxy


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """In front of a server that sends back what it gets."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(1024):
            writer.write(piece)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with Proxy(f"{host}:{port}") as proxy:
        yield proxy
    server.close()
    await server.wait_closed()


async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: bytes) -> bytes:
    writer.write(text)
    return await reader.read(1024)


async def test_it_forwards_both_ways_and_breaks_when_told(proxy: Proxy) -> None:
    host, _, port = proxy.address.rpartition(":")
    connection = await asyncio.open_connection(host, int(port))
    assert await talk(*connection, b"one") == b"one"

    proxy.delay_seconds = 60.0
    waiting = asyncio.create_task(talk(*connection, b"two"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await proxy.cut()
    assert await waiting == b""
    connection[1].close()

    proxy.delay_seconds = 0.0
    again = await asyncio.open_connection(host, int(port))
    assert await talk(*again, b"three") == b"three"
    again[1].close()


async def test_what_is_away_takes_no_connection_until_it_is_back(proxy: Proxy) -> None:
    host, _, port = proxy.address.rpartition(":")
    await proxy.take_away()
    for _ in range(2):
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await reader.read(1) == b""
        writer.close()
    proxy.bring_back()
    connection = await asyncio.open_connection(host, int(port))
    assert await talk(*connection, b"one") == b"one"
    connection[1].close()
