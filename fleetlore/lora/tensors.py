"""Read what a safetensors file says of its tensors, believing nothing: somebody else wrote it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import orjson

from fleetlore.errors import AdapterRefused

# Bytes of an element. Others are no weights of a LoRA.
_SIZES = {"F32": 4, "F16": 2, "BF16": 2}
_MOST_HEADER = 4 * 1024 * 1024
_METADATA = "__metadata__"
# Elements that are looked at in one go.
_CHUNK = 1 << 22


class _Tensor(NamedTuple):
    """Where a tensor lies: `dtype` as safetensors names it, `begin` and `end` in bytes after the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class TensorFile(NamedTuple):
    """The parts of a safetensors file: its tensors by name, what else its header says, and the data."""

    tensors: dict[str, _Tensor]
    metadata: dict[str, str]
    data: memoryview


def read_header(head: bytes) -> tuple[dict[str, Any], int]:
    """The header of a file as it is written there, and where the data begins.

    Args:
        head: the first bytes of a file, of which the header must be part.

    Raises:
        AdapterRefused: `structure`: it is none.
    """
    size = int.from_bytes(head[:8], "little")
    if len(head) < 8 or not 2 <= size <= min(_MOST_HEADER, len(head) - 8):
        raise AdapterRefused("structure", "no header of safetensors")
    try:
        header = orjson.loads(head[8 : 8 + size])
    except orjson.JSONDecodeError as error:
        raise AdapterRefused("structure", f"the header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise AdapterRefused("structure", "the header is no JSON object")
    return header, 8 + size


def read_tensors(file: bytes) -> TensorFile:
    """The parts of a file whose tensors fill it without gap or overlap, and hold finite numbers.

    Raises:
        AdapterRefused: `structure` or `not_finite`.
    """
    header, begin = read_header(file)
    metadata = header.pop(_METADATA, None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise AdapterRefused("structure", "the metadata is not text by name")
    tensors = {name: _tensor(name, entry) for name, entry in header.items()}
    data, reached = memoryview(file)[begin:], 0
    for name, tensor in sorted(tensors.items(), key=lambda each: each[1].begin):
        if tensor.begin != reached:
            raise AdapterRefused("structure", f"{name[:100]!r} does not begin where the one before ends")
        reached = tensor.end
    if reached != len(data):
        raise AdapterRefused("structure", f"tensors of {reached} bytes in {len(data)}")
    for name, tensor in tensors.items():
        if not _is_finite(tensor, data):
            raise AdapterRefused("not_finite", name[:100])
    return TensorFile(tensors, metadata, data)


def write_tensors(file: TensorFile) -> bytes:
    """The file in one form: the same tensors and metadata in the same order give the same bytes."""
    header: dict[str, Any] = {
        name: {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [tensor.begin, tensor.end]}
        for name, tensor in file.tensors.items()
    }
    encoded = orjson.dumps(header | {_METADATA: file.metadata}, option=orjson.OPT_SORT_KEYS)
    encoded += b" " * (-len(encoded) % 8)
    return len(encoded).to_bytes(8, "little") + encoded + file.data


def _tensor(name: str, entry: Any) -> _Tensor:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        whole = all(type(each) is int and each >= 0 for each in (*shape, begin, end))
        fits = whole and end - begin == math.prod(shape) * _SIZES[dtype]
    except (KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        raise AdapterRefused("structure", f"{name[:100]!r} is no tensor of {', '.join(_SIZES)}")
    return _Tensor(dtype, shape, begin, end)


def _is_finite(tensor: _Tensor, data: memoryview) -> bool:
    whole = data[tensor.begin : tensor.end]
    size = _SIZES[tensor.dtype]
    for begin in range(0, len(whole), _CHUNK * size):
        part = whole[begin : begin + _CHUNK * size]
        if tensor.dtype == "BF16":  # numpy has none; its exponent is that of float32
            finite = bool(((np.frombuffer(part, "<u2") & 0x7F80) != 0x7F80).all())
        else:
            finite = bool(np.isfinite(np.frombuffer(part, "<f4" if size == 4 else "<f2")).all())
        if not finite:
            return False
    return True
