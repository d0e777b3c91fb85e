"""Train a LoRA of a model whose weights are a GGUF file, on a CPU, and write it as GGUF for llama.cpp.

transformers reads the file through the package `gguf`, which has an environment of its own, and dequantises it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.living.llm.venvs import python_with
from benchmarks.living.llm.weights import CACHE, gguf

Messages = Sequence[tuple[str, str]]

RANK, ALPHA, RATE = 16, 32, 3e-4
# Modules as peft and as llama.cpp name them: what says where to look, and what holds names.
TARGETS = {"q_proj": "attn_q", "v_proj": "attn_v", "up_proj": "ffn_up", "down_proj": "ffn_down"}


def trainable(name: str) -> Path:
    """Folder of the model with its weights dequantised, as transformers and peft take it; made once."""
    folder = CACHE / f"{name}-bf16"
    if (folder / "model.safetensors").exists():
        return folder
    _with_gguf()
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    file = gguf(name)
    options: dict[str, Any] = {"gguf_file": file.name}
    loaded = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **options)
    # What was loaded from four bits refuses to be trained; the same weights in a new model do not.
    made_of: Any = AutoModelForCausalLM
    whole = made_of.from_config(AutoConfig.from_pretrained(file.parent, **options), dtype=torch.bfloat16)
    whole.load_state_dict(loaded.state_dict())
    AutoTokenizer.from_pretrained(file.parent, **options).save_pretrained(folder)
    whole.save_pretrained(folder)
    return folder


def train(
    base: Path,
    learned: Sequence[tuple[Messages, str]],
    gate: Sequence[tuple[Messages, str, str]],
    epochs: int,
    out: Path,
) -> list[Path]:
    """Two versions, of half the training and of all of it, each as peft saves it with the gate's report.

    The gate asks how much likelier a call that worked is than one that failed, by the mean log-probability of their
    tokens, on tasks that were not learned from; a version passes that widens this over the bare model.
    """
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    torch.set_num_threads(1)  # two wait for each other where others use the machine
    tokenizer = AutoTokenizer.from_pretrained(base)
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=list(TARGETS), task_type="CAUSAL_LM")
    before = _margin(model, tokenizer, gate)
    tuned: Any = get_peft_model(model, config)
    optimiser = torch.optim.AdamW([each for each in tuned.parameters() if each.requires_grad], lr=RATE)
    lessons = [each for _ in range(epochs) for each in learned]
    versions: list[Path] = []
    for number, (messages, said) in enumerate(lessons, 1):
        tuned.train()
        optimiser.zero_grad()
        loss = -_likelihood(tuned, tokenizer, messages, said)
        torch.autograd.backward(loss)
        optimiser.step()
        sys.stderr.write(f"lesson {number} of {len(lessons)}: {loss.item():.3f}\n")
        if number in (max(1, len(lessons) // 2), len(lessons)):
            versions.append(out / f"version-{len(versions) + 1}")
            tuned.save_pretrained(versions[-1])
            after = _margin(tuned, tokenizer, gate)
            metrics = {"margin": after, "margin_of_base": before, "states": len(gate)}
            (versions[-1] / "gate.json").write_text(json.dumps({"passed": after > before, "metrics": metrics}))
    return versions


def as_gguf(adapter: Path, file: Path) -> Path:
    """A LoRA as peft saves it, as llama.cpp loads it."""
    _with_gguf()
    from gguf import GGUFWriter  # type: ignore[import-not-found, unused-ignore]
    from safetensors.torch import load_file

    config = json.loads((adapter / "adapter_config.json").read_text())
    writer = GGUFWriter(file, "qwen2")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(config["lora_alpha"]))
    for name, tensor in renamed(load_file(adapter / "adapter_model.safetensors")):
        writer.add_tensor(name, tensor.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def renamed(tensors: dict[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """By llama.cpp's names: `blk.12.attn_q.weight.lora_a`."""
    for name, tensor in sorted(tensors.items()):
        *_, layer, _, target, side, _ = name.split(".")
        yield f"blk.{layer}.{TARGETS[target]}.weight.{side.lower()}", tensor


def _likelihood(model: Any, tokenizer: Any, messages: Messages, said: str) -> torch.Tensor:
    """Mean log-probability of the tokens of `said` after the messages."""
    asked = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in messages) + "<|im_start|>assistant\n"
    start = tokenizer(asked, return_tensors="pt").input_ids
    end = tokenizer(f"{said}<|im_end|>", return_tensors="pt").input_ids
    answer = model(torch.cat((start, end), 1), logits_to_keep=end.shape[1] + 1)
    logits: torch.Tensor = answer.logits[0, :-1].float().log_softmax(-1)
    return logits.gather(1, end[0, :, None]).mean()


@torch.no_grad()
def _margin(model: Any, tokenizer: Any, gate: Sequence[tuple[Messages, str, str]]) -> float:
    model.eval()
    each = [
        float(_likelihood(model, tokenizer, messages, worked) - _likelihood(model, tokenizer, messages, failed))
        for messages, worked, failed in gate
    ]
    return sum(each) / max(1, len(each))


def _with_gguf() -> None:
    """Make `gguf` importable here."""
    python = python_with("gguf==0.19.0")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    sys.path.append(str(python.parents[1] / "lib" / version / "site-packages"))
