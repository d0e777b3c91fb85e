"""A language model that is small enough for a test, and LoRAs over it, both as their libraries save them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

MakeLora = Callable[..., Path]
LLAMA = LlamaConfig(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    tie_word_embeddings=False,
)


@pytest.fixture(scope="session")
def base_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(0)
    LlamaForCausalLM(LLAMA).save_pretrained(folder)
    return folder


@pytest.fixture
def make_lora(base_folder: Path, tmp_path: Path) -> MakeLora:
    """`make_lora(seed, **config)`: the folder of an adapter of random weights."""

    def make(seed: int = 1, **config: Any) -> Path:
        torch.manual_seed(seed)
        options: dict[str, Any] = {
            "r": 4,
            "lora_alpha": 8,
            "target_modules": ["q_proj", "v_proj"],
            "task_type": "CAUSAL_LM",
        }
        model = get_peft_model(LlamaForCausalLM.from_pretrained(base_folder), LoraConfig(**options | config))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_" in name:
                    parameter.copy_(torch.randn(parameter.shape) * 0.2)
        folder = tmp_path / f"lora-{seed}-{len(list(tmp_path.iterdir()))}"
        model.save_pretrained(folder)
        return folder

    return make
