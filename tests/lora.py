"""A language model that is small enough for a test, and LoRAs over it, both as their libraries save them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetlore.lora.adapter import Lora
from fleetlore.wire.adapter_manifest import LanguageModelManifest
from tests.random_adapters import manifest_for

MakeLora = Callable[..., Path]


def manifest_of(lora: Lora, base_hash: str, **changes: Any) -> LanguageModelManifest:
    said = {name: getattr(lora, name) for name in ("rank", "alpha", "rank_stabilized", "targets", "tensors")}
    return manifest_for(lora.weights, "default", **said | {"base_sha256": base_hash} | changes)


def language_model(folder: Path, lora: Path | None = None) -> Any:
    """Load an adapter with the `peft` library, which takes seconds to import."""
    from peft import PeftModel
    from transformers import LlamaForCausalLM

    base = LlamaForCausalLM.from_pretrained(folder)
    return base if lora is None else PeftModel.from_pretrained(base, lora)


@pytest.fixture(scope="session")
def base_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch  # takes seconds
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("base")
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def make_lora(base_folder: Path, tmp_path: Path) -> MakeLora:
    """`make_lora(seed, **config)`: the folder of an adapter of random weights."""
    import torch
    from peft import LoraConfig, get_peft_model

    def make(seed: int = 1, **config: Any) -> Path:
        torch.manual_seed(seed)
        options: dict[str, Any] = {
            "r": 4,
            "lora_alpha": 8,
            "target_modules": ["q_proj", "v_proj"],
            "task_type": "CAUSAL_LM",
        }
        model = get_peft_model(language_model(base_folder), LoraConfig(**options | config))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_" in name:
                    parameter.copy_(torch.randn(parameter.shape) * 0.2)
        folder = tmp_path / f"lora-{seed}-{len(list(tmp_path.iterdir()))}"
        model.save_pretrained(folder)
        return folder

    return make
