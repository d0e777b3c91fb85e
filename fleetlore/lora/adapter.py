"""Check a LoRA as `peft` saves it, and pack it into one complete file.

Each changed module must have a matrix pair, `lora_A` (rank, in) and `lora_B` (out, rank). Whole or new modules and code
are refused. The configuration is rewritten from the manifest. The file's metadata holds the scale, because a version is
its weights *and* its scale.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from fleetlore.errors import AdapterRefused, ConfigError
from fleetlore.wire.adapter_manifest import LanguageModelManifest
from fleetlore.wire.stats import stable_hash

__all__ = ["WEIGHTS", "base_of", "config_of", "pack", "read_lora", "unpack"]


CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_SCALE = "fleetlore"  # key of the metadata
_NAME = re.compile(r"base_model\.model\.((?:[\w-]+\.)*([\w-]+))\.lora_(A|B)\.weight")
_MOST_CONFIG = 1024 * 1024
_MOST_RANK = 512

# `LoraConfig` fields that must be absent or empty. Other values change more than two matrices a module or name code.
_NOT_PLAIN = (
    "modules_to_save", "use_dora", "lora_bias", "use_qalora", "use_bdlora", "fan_in_fan_out", "rank_pattern",
    "alpha_pattern", "auto_mapping", "layer_replication", "alora_invocation_tokens", "trainable_token_indices",
    "target_parameters",
)  # fmt: skip
# These change the base before training, so the file does not hold the whole difference.
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq")

# numpy types of a LoRA's elements. It has no BF16.
_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_METADATA = "__metadata__"
# Elements that are checked at a time.
_CHUNK = 1 << 22


class _TensorFile(NamedTuple):
    """Parts of a safetensors file: tensors by name, other header fields, and data."""

    tensors: dict[str, dict[str, Any]]
    metadata: dict[str, str]
    data: memoryview

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(tensor["shape"]) for name, tensor in self.tensors.items()}


def read_tensors(file: bytes) -> _TensorFile:
    """Parse a file whose tensors fill it without gap or overlap and are finite."""
    from safetensors import SafetensorError, deserialize  # extra `[adapters]`

    size = int.from_bytes(file[:8], "little")
    try:
        deserialize(file)  # type: ignore[no-untyped-call]  # it copies all of it: what is kept is not taken from there
        header = orjson.loads(file[8 : 8 + size])
    except (SafetensorError, orjson.JSONDecodeError) as error:
        raise AdapterRefused("structure", f"no safetensors: {error}") from None
    metadata, data = header.pop(_METADATA, None) or {}, memoryview(file)[8 + size :]
    for name, tensor in header.items():
        if tensor["dtype"] not in _DTYPES:
            raise AdapterRefused("structure", f"{name[:100]!r} is no tensor of {', '.join(_DTYPES)}")
        if not _is_finite(tensor["dtype"], data[slice(*tensor["data_offsets"])]):
            raise AdapterRefused("not_finite", name[:100])
    return _TensorFile(header, metadata, data)


def write_tensors(file: _TensorFile) -> bytes:
    """Return the canonical file: equal tensors and metadata in equal order give equal bytes."""
    header: dict[str, Any] = {
        name: {key: tensor[key] for key in ("dtype", "shape", "data_offsets")} for name, tensor in file.tensors.items()
    }
    encoded = orjson.dumps(header | {_METADATA: file.metadata}, option=orjson.OPT_SORT_KEYS)
    encoded += b" " * (-len(encoded) % 8)
    return len(encoded).to_bytes(8, "little") + encoded + file.data


def _is_finite(dtype: str, data: memoryview) -> bool:
    numbers = np.frombuffer(data, _DTYPES[dtype])
    chunks = (numbers[at : at + _CHUNK] for at in range(0, len(numbers), _CHUNK))
    if dtype == "BF16":  # it has float32's exponent
        return all(((chunk & 0x7F80) != 0x7F80).all() for chunk in chunks)
    return all(np.isfinite(chunk).all() for chunk in chunks)


def pack(sessions: Iterable[str]) -> str:
    """Pack hashes of session ids, which erasures need: base64 of sorted little-endian 64-bit integers."""
    return base64.b64encode(np.array(sorted(map(stable_hash, sessions)), "<u8").tobytes()).decode()


def unpack(packed: str) -> frozenset[int]:
    return frozenset(np.frombuffer(base64.b64decode(packed), "<u8").tolist())


class Base(NamedTuple):
    sha256: str
    shapes: Mapping[str, tuple[int, ...]]


def base_of(folder: Path) -> Base:
    """Read a model's `*.safetensors`. Raises ConfigError: the folder has no such file, or one is damaged."""
    from safetensors import SafetensorError, safe_open

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ConfigError(f"{folder} holds no *.safetensors: give the folder of the language model")
    shapes: dict[str, tuple[int, ...]] = {}
    hashes: list[tuple[str, str]] = []
    for file in files:
        try:
            with safe_open(file, "np") as tensors:
                shapes |= {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
            with file.open("rb") as opened:
                hashes.append((hashlib.file_digest(opened, "sha256").hexdigest(), file.name))
        except SafetensorError as error:
            raise ConfigError(f"{file} is damaged: {error}") from None
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    if len(hashes) == 1:
        return Base(hashes[0][0], shapes)
    listed = "".join(f"{sha256}  {name}\n" for sha256, name in hashes)
    return Base(hashlib.sha256(listed.encode()).hexdigest(), shapes)


class Lora(NamedTuple):
    """An adapter that passed every check. `weights`: the canonical file, whose hash is the version."""

    weights: bytes
    base_sha256: str
    rank: int
    alpha: float
    rank_stabilized: bool
    targets: tuple[str, ...]
    tensors: dict[str, tuple[int, ...]]

    @property
    def stated(self) -> dict[str, Any]:
        """Fields of the adapter's manifest that describe its matrices."""
        fields = self._asdict()
        del fields["weights"]
        return fields


def read_lora(folder: Path, base: Base) -> Lora:
    """Read an adapter that `peft` saved in a folder.

    Raises ConfigError: the folder has no adapter. Raises AdapterRefused: `structure`, `foreign` (it does not fit the
    base), `oversized` or `not_finite`.
    """
    try:
        stated = orjson.loads((folder / CONFIG).read_bytes()[:_MOST_CONFIG])
        if (folder / WEIGHTS).stat().st_size > LanguageModelManifest.most_bytes:
            raise AdapterRefused("oversized", f"{WEIGHTS} has more than {LanguageModelManifest.most_bytes:,} bytes")
        file = read_tensors((folder / WEIGHTS).read_bytes())
    except OSError as error:
        raise ConfigError(f"{folder} holds no LoRA as peft saves it: {error.filename}: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise AdapterRefused("structure", f"{CONFIG} is no JSON: {error}") from None
    rank, alpha, stabilized = _scale_of(stated)
    shapes = file.shapes
    targets = _check_names(shapes, rank, base)
    scale = orjson.dumps({"alpha": alpha, "base_sha256": base.sha256, "rank": rank, "rank_stabilized": stabilized})
    weights = write_tensors(_TensorFile(file.tensors, {"format": "pt", _SCALE: scale.decode()}, file.data))
    return Lora(weights, base.sha256, rank, alpha, stabilized, targets, dict(sorted(shapes.items())))


def check_lora(weights: bytes, manifest: LanguageModelManifest) -> None:
    """Check weights against their signed manifest. Raises AdapterRefused: `structure` or `not_finite`."""
    file = read_tensors(weights)
    shapes = file.shapes
    if shapes != manifest.tensors or _check_names(shapes, manifest.rank) != manifest.targets:
        raise AdapterRefused("structure", "the tensors are not the ones the manifest names")
    try:
        scale = orjson.loads(file.metadata.get(_SCALE, ""))
    except orjson.JSONDecodeError:
        scale = None
    if scale != {name: getattr(manifest, name) for name in ("alpha", "base_sha256", "rank", "rank_stabilized")}:
        raise AdapterRefused("structure", "the scale in the file is not the one the manifest names")


def config_of(manifest: LanguageModelManifest) -> bytes:
    config: dict[str, Any] = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": manifest.base}
    config |= {"r": manifest.rank, "lora_alpha": manifest.alpha, "use_rslora": manifest.rank_stabilized}
    config |= {"target_modules": manifest.targets, "bias": "none", "lora_dropout": 0.0, "inference_mode": True}
    return orjson.dumps(config, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)


def _scale_of(stated: Any) -> tuple[int, float, bool]:
    if not isinstance(stated, dict) or stated.get("peft_type") != "LORA":
        raise AdapterRefused("structure", f"{CONFIG} does not describe a LoRA")
    for name in ("bias", *_NOT_PLAIN):
        value = stated.get(name)
        if value and (name, value) != ("bias", "none"):
            raise AdapterRefused("structure", f"{CONFIG}: {name} is {str(value)[:100]}: only plain LoRA is taken")
    initial = stated.get("init_lora_weights", True)
    if isinstance(initial, str) and initial.lower().startswith(_CHANGES_BASE):
        raise AdapterRefused("structure", f"{CONFIG}: {initial[:40]} changes the base; save it as a plain LoRA first")
    rank, alpha = stated.get("r"), stated.get("lora_alpha")
    if not isinstance(rank, int) or not 0 < rank <= _MOST_RANK:
        raise AdapterRefused("structure", f"{CONFIG}: r is {str(rank)[:40]}, not 1 to {_MOST_RANK}")
    if not isinstance(alpha, int | float) or not 0 < alpha <= 64 * _MOST_RANK:
        raise AdapterRefused("structure", f"{CONFIG}: lora_alpha is {str(alpha)[:40]}")
    return rank, float(alpha), stated.get("use_rslora") is True


def _check_names(shapes: Mapping[str, tuple[int, ...]], rank: int, base: Base | None = None) -> tuple[str, ...]:
    sides: dict[str, set[str]] = {}
    targets = set()
    for name, shape in shapes.items():
        match = _NAME.fullmatch(name)
        if match is None:
            raise AdapterRefused("structure", f"{name[:100]!r} is no matrix of a LoRA")
        module, last, side = match.groups()
        if len(shape) != 2 or shape[0 if side == "A" else 1] != rank:
            raise AdapterRefused("structure", f"{name[:100]!r} has shape {shape} at rank {rank}")
        if base is not None:
            there, width = base.shapes.get(f"{module}.weight"), 1 if side == "A" else 0
            if there is None or len(there) != 2 or shape[width] != there[width]:
                found = "has no such matrix" if there is None else f"has one of {there}"
                raise AdapterRefused("foreign", f"{name[:100]!r} has shape {shape}, and the base {found}")
        sides.setdefault(module, set()).add(side)
        targets.add(last)
    single = next((module for module, both in sides.items() if len(both) < 2), None)
    if not sides or single is not None:
        raise AdapterRefused("structure", f"{single or 'the file'} has not both matrices of a LoRA")
    return tuple(sorted(targets))
