"""Connect to Milvus."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fleetlore.errors import ModelUnavailable
from fleetlore.loopback import is_loopback

if TYPE_CHECKING:
    from pymilvus import MilvusClient

# A gRPC server closes an idle connection that pings more often than every 5 minutes; pymilvus pings every 10 s.
_GRPC_OPTIONS = {"grpc.keepalive_time_ms": 300_000, "grpc.keepalive_permit_without_calls": 0}


def connect(uri: str, token: str, timeout_seconds: float) -> MilvusClient:
    try:
        from pymilvus import MilvusClient
        from pymilvus.client.utils import SciPyHelper
    except ImportError as error:
        raise ModelUnavailable(
            "Milvus is reached with pymilvus: pip install 'fleetlore[recall]' from your index"
        ) from error
    # The caller logs an error once.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    # pymilvus imports scipy at its first row, which fails in two threads at once.
    SciPyHelper.is_scipy_sparse(None)
    # gRPC would use `http_proxy` even for this machine.
    direct = {"grpc.enable_http_proxy": 0} if is_loopback(urlsplit(uri).hostname or "") else {}
    return MilvusClient(uri=uri, token=token, timeout=timeout_seconds, grpc_options=_GRPC_OPTIONS | direct)


def milvus_errors() -> tuple[type[Exception], ...]:
    """Return the errors of client calls."""
    from grpc import RpcError
    from pymilvus import MilvusException

    return MilvusException, RpcError


def message_of(error: Exception) -> str:
    return str(getattr(error, "message", error))
