"""A TCP proxy that makes a server slow or takes it away, without touching the server."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

CHUNK_BYTES = 64 * 1024


class Proxy:
    """Forwards connections to `host:port`; an async context manager. Use from one event loop.

    `address` is where to connect instead, with `tls` if it is given: the server gets plain text. `delay_seconds`: how
    long each piece on its way to the server (at most 64 KiB) is held back.
    """

    def __init__(self, target: str, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.address = ""
        self._listen = port
        self._tls = tls
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.delay_seconds = 0.0
        self._host, _, far = target.rpartition(":")
        self._port = int(far)
        self._server: asyncio.Server | None = None
        self._away = False
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._listen, ssl=self._tls)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.take_away()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def stall(self) -> None:
        """Let nothing through, either way, and break nothing: what is sent arrives after `flow`."""
        self._flowing.clear()

    def flow(self) -> None:
        """Undo `stall`."""
        self._flowing.set()

    async def cut(self) -> None:
        """Break all connections; new ones are taken. Bytes that were held back never arrive."""
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def take_away(self) -> None:
        """Break all connections and every new one."""
        self._away = True
        await self.cut()

    def bring_back(self) -> None:
        """Undo `take_away`."""
        self._away = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if not self._away:
                await self._forward(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        try:
            ways = [
                asyncio.create_task(self._copy(reader, far_writer, delayed=True)),
                asyncio.create_task(self._copy(far_reader, writer, delayed=False)),
            ]
            try:
                # Either side's end is the end of both: gRPC closes no half of a connection.
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            far_writer.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delayed: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(CHUNK_BYTES):
                if delayed and self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                await self._flowing.wait()
                writer.write(piece)
                await writer.drain()
