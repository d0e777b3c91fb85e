"""How the page reaches its broker."""

from __future__ import annotations

import asyncio

from fleetlore.config import Settings
from streams.console.sources import Sources

TLS_HANDSHAKE = b"\x16"


async def test_each_connection_of_the_page_is_as_secure_as_the_settings_say() -> None:
    first: list[bytes] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first.append(await reader.read(1))
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    settings = Settings(broker=f"{host}:{port}", kafka_security_protocol="SSL")
    async with server, Sources(settings, "acme", []):
        async with asyncio.timeout(60):
            while len(first) < 12:  # lore, dead letters, decisions and adapters, each several times
                await asyncio.sleep(0.02)
    assert set(first) == {TLS_HANDSHAKE}
