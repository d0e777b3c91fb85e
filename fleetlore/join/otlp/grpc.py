"""Receive OTLP over gRPC, as collectors and SDKs send it by default."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from fleetlore.errors import ConfigError
from fleetlore.join.otlp.traces import MAX_BODY, NO_OTLP, Traces
from fleetlore.transcripts.otlp import spans_of

__all__ = ["serving"]

_SERVICE = "opentelemetry.proto.collector.{0}.v1.{1}Service"


@asynccontextmanager
async def serving(traces: Traces, address: str) -> AsyncIterator[None]:
    """Serve on HOST:PORT; all traces are closed at its end.

    Raises:
        ConfigError: it cannot be listened on.
    """
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", MAX_BODY)])
    for kind, name in (("trace", "Trace"), ("logs", "Logs")):
        # Without deserializers: bytes are read as those over HTTP are, and the empty answer is no bytes.
        handler = grpc.unary_unary_rpc_method_handler(_exporter(traces, logs=kind == "logs"))
        handlers = grpc.method_handlers_generic_handler(_SERVICE.format(kind, name), {"Export": handler})
        server.add_generic_rpc_handlers((handlers,))
    try:
        server.add_insecure_port(address)
    except RuntimeError:
        raise ConfigError(f"{address} cannot be listened on; is the port taken?") from None
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)
        traces.close_silent(0.0)


def _exporter(traces: Traces, *, logs: bool) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def export(body: bytes, context: Any) -> bytes:
        if traces.full:  # a code by which exporters send it again
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the buffer is full")
        try:
            for span in spans_of(body, "application/x-protobuf", logs=logs):
                traces.add(span)
        except NO_OTLP as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no OTLP: {error}")
        return b""

    return export
