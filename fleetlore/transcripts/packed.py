"""Unpack what was compressed, no further than a limit: a few kB on the wire may stand for gigabytes."""

from __future__ import annotations

import zlib

from fleetlore.errors import ModelUnavailable

__all__ = ["inflated", "unpacked_zstd"]

_GZIP = 16 + zlib.MAX_WBITS


def inflated(packed: bytes, limit: int, *, gzip: bool) -> bytes:
    """Up to `limit` and one more bytes of what gzip or deflate packed, the latter with zlib's header or without."""
    has_header = packed[:1] == b"\x78" and int.from_bytes(packed[:2], "big") % 31 == 0
    unpacking = zlib.decompressobj(_GZIP if gzip else zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
    try:
        found = unpacking.decompress(packed, limit + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(found) <= limit and not unpacking.eof:
        raise ValueError("it is cut off")
    return found


def unpacked_zstd(packed: bytes, limit: int) -> bytes:
    """More than `limit` bytes of what Zstandard packed, or all of it."""
    try:
        import zstandard
    except ImportError:
        raise ModelUnavailable("this is packed with Zstandard, which needs a package: pip install zstandard") from None
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed) as stream:
            found = bytes(stream.read(limit + 1))
        if len(found) > limit:
            return found
        # The stream does not say whether its input was cut off. The output is known to be small, so unpack it at once.
        unpacking = zstandard.ZstdDecompressor().decompressobj()
        found = unpacking.decompress(packed)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    if not unpacking.eof:
        raise ValueError("it is cut off")
    return found
