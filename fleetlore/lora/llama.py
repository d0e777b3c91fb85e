"""Serve a LoRA with llama.cpp: convert it to GGUF, and switch a running server to it.

llama.cpp loads adapter files at start (`llama-server --lora FILE`) and then only sets their scales (`/lora-adapters`).
So rollbacks to a loaded version and revocations take effect at once. A new version needs a restart.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

import orjson

from fleetlore.errors import AdapterRefused, extra
from fleetlore.lora.adapter import read_tensors
from fleetlore.wire.adapter_manifest import LanguageModelManifest

__all__ = ["GGUF", "LlamaServer", "as_gguf"]

GGUF = "adapter.gguf"
_TIMEOUT_SECONDS = 10.0
# llama.cpp's names of the modules. In the architecture `llama` it stores queries and keys in another order.
_MODULES = {
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
}
_IN_ORDER = {"q_proj": "attn_q", "k_proj": "attn_k"}


def as_gguf(weights: bytes, manifest: LanguageModelManifest) -> bytes:
    """Return a checked adapter as llama.cpp loads it. Raises AdapterRefused (`structure`: no architecture is named, or
    a module cannot be converted), ModelUnavailable (without the extra `[llama]`).
    """
    with extra("llama", "llama.cpp loads adapters as"):
        import gguf
    from safetensors.numpy import load

    modules = _MODULES if manifest.architecture == "llama" else _MODULES | _IN_ORDER
    if not manifest.architecture or not modules.keys() >= set(manifest.targets):
        targets = ", ".join(manifest.targets)
        raise AdapterRefused("structure", f"no GGUF of {targets} in architecture {manifest.architecture!r}")
    if any(tensor["dtype"] == "BF16" for tensor in read_tensors(weights).tensors.values()):
        raise AdapterRefused("structure", "no GGUF of BF16")
    alpha = manifest.alpha * (manifest.rank**0.5 if manifest.rank_stabilized else 1.0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / GGUF
        writer = gguf.GGUFWriter(file, manifest.architecture)
        writer.add_type("adapter")
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", alpha)
        for name, tensor in sorted(load(weights).items()):
            *_, layer, _, module, side, _ = name.split(".")
            writer.add_tensor(f"blk.{layer}.{modules[module]}.weight.{side.lower()}", tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return file.read_bytes()


class LlamaServer:
    """A running llama.cpp server, as `http://127.0.0.1:8080`. Its methods block. `restart`: starts it again with
    `--lora FILE`, and returns when it answers; without it a person starts it.
    """

    def __init__(self, url: str, restart: Callable[[Path], object] | None = None) -> None:
        self._url = url.rstrip("/")
        self._restart = restart

    def run(self, file: Path | None) -> bool:
        """Run this adapter alone, or none. Return False if the server has not loaded it. Raises OSError."""
        if self._switched(file):
            return True
        if self._restart is None or file is None:
            return False
        self._restart(file)
        return self._switched(file)

    def _switched(self, file: Path | None) -> bool:
        loaded = orjson.loads(self._ask(None))
        scales = [{"id": each["id"], "scale": float(Path(each["path"]) == file)} for each in loaded]
        if scales:
            self._ask(orjson.dumps(scales))
        return file is None or any(each["scale"] for each in scales)

    def _ask(self, body: bytes | None) -> bytes:
        request = Request(f"{self._url}/lora-adapters", data=body, headers={"Content-Type": "application/json"})
        with urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            content: bytes = answer.read()
            return content
