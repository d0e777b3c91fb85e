"""Make a language model of bytes that is small enough to be trained in seconds, with random weights."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

__all__ = ["END", "save_tiny_model"]

END = "<|endoftext|>"


def save_tiny_model(folder: Path, architecture: str = "qwen2", hidden: int = 64) -> Path:
    """Save it as transformers does: safetensors, configuration and tokenizer. Takes some seconds, mostly of imports."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    transformers: Any = importlib.import_module("transformers")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters: Any = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    letters.pre_tokenizer, letters.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    letters.add_special_tokens([END])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=letters, eos_token=END)
    tokenizer.save_pretrained(folder)
    config = transformers.AutoConfig.for_model(
        architecture,
        vocab_size=letters.get_vocab_size(),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder
