"""Connect to Milvus, for those who write rows and those who search them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fleetlore.errors import ModelUnavailable
from fleetlore.loopback import is_loopback

if TYPE_CHECKING:
    from pymilvus import MilvusClient

# pymilvus pings every 10 s; a gRPC server allows one ping in 5 minutes on an idle connection and then closes it.
_GRPC_OPTIONS = {"grpc.keepalive_time_ms": 300_000, "grpc.keepalive_permit_without_calls": 0}


def connect(uri: str, token: str, timeout_seconds: float) -> MilvusClient:
    """Return a connected client, each call of which ends within the time.

    Raises:
        ModelUnavailable: pymilvus is not installed.
        MilvusException: Milvus does not answer.
    """
    try:
        from pymilvus import MilvusClient
        from pymilvus.client.utils import SciPyHelper
    except ImportError as error:
        raise ModelUnavailable("Milvus is reached with pymilvus: pip install 'fleetlore[recall]'") from error
    # pymilvus logs every failed call with its trace; the caller gets the error and logs it once.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    # pymilvus looks for scipy at the first row that it packs, which fails where two threads do so at once.
    SciPyHelper.is_scipy_sparse(None)
    # gRPC would ask the proxy of `http_proxy` for an address of this machine.
    direct = {"grpc.enable_http_proxy": 0} if is_loopback(urlsplit(uri).hostname or "") else {}
    return MilvusClient(uri=uri, token=token, timeout=timeout_seconds, grpc_options=_GRPC_OPTIONS | direct)


def milvus_errors() -> tuple[type[Exception], ...]:
    """What a call of the client raises; to be asked for only where there is a client."""
    from grpc import RpcError
    from pymilvus import MilvusException

    return MilvusException, RpcError


def message_of(error: Exception) -> str:
    """What Milvus says of an error."""
    return str(getattr(error, "message", error))
