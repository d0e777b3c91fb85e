"""Train a LoRA of the agents' own language model from preference pairs, with peft on a CPU.

A version is a function of base model, pairs and seed. It carries plain matrices in safetensors
(`fleetlore.lora.adapter`), which peft, vLLM and llama.cpp can serve.
"""

import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from torch.nn import functional

from fleetlore.errors import ConfigError
from fleetlore.lora.adapter import WEIGHTS, Base, Lora, base_of, config_of, read_lora
from fleetlore.wire.adapter_manifest import LanguageModelManifest
from models.policy.pairs import Messages, Pair

__all__ = ["LanguageModel", "Training", "snapshot"]

_UNRELATED = Path(__file__).with_name("unrelated.txt")
# Matrices that llama.cpp and transformers store alike. Some architectures reorder those of queries and keys.
_TARGETS = ["v_proj", "up_proj", "down_proj"]
# A template that shows calls, for models whose own does not.
_TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}"""
# Margin in nats a token of the call that worked over the one that failed.
_TARGET = 0.5
_SHARPNESS = 4.0
# Weight of imitating the call that worked. Without it both calls become less likely, and a third is made.
_IMITATION = 0.5


def _loss(worked: Tensor, failed: Tensor) -> Tensor:
    """A margin (SimPO, Meng et al. 2024) and imitation (ORPO, Hong et al. 2024), of mean log-probabilities."""
    contrast: Tensor = -functional.logsigmoid(_SHARPNESS * (worked - failed - _TARGET))
    return contrast - _IMITATION * worked


class Training(NamedTuple):
    rank: int = 8
    alpha: int = 16
    # More raise the perplexity on unrelated text.
    updates: int = 25
    batch_pairs: int = 4
    learning_rate: float = 5e-4
    most_tokens: int = 512
    seed: int = 0


class _Encoded(NamedTuple):
    prompt: Tensor
    worked: Tensor
    failed: Tensor


def snapshot(model: str) -> Path:
    """Return a language model's folder, given itself or a name on the hub. Raises ConfigError: neither exists."""
    if (folder := Path(model).expanduser()).is_dir():
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=["*.json", "*.jinja", "*.safetensors", "*.txt", "*.model"]))
    except Exception as error:  # whatever the hub's client raises
        raise ConfigError(f"--policy {model}: no folder, and the hub does not give it: {error}") from None


class LanguageModel:
    """A language model, saved by transformers in `folder`, that runs alone or with one adapter at a time. `pace`:
    called after each piece of work. `base`: hash and shapes, which an adapter must fit. `architecture`: its name in
    transformers and llama.cpp, as `qwen2`.
    """

    def __init__(
        self, folder: Path, training: Training | None = None, pace: Callable[[], object] = lambda: None
    ) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.base: Base = base_of(folder)
        self.training = training or Training()
        self._pace = pace
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        # float32: bfloat16 is slower on processors without matrix units.
        self._plain: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._model: Any = self._plain
        self.architecture = str(self._plain.config.model_type)
        if not self._template_shows_calls():
            self._tokenizer.chat_template = _TEMPLATE

    def _template_shows_calls(self) -> bool:
        if not self._tokenizer.chat_template:
            return False
        call = {"type": "function", "function": {"name": "look_up", "arguments": {"word": "heron"}}}
        messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
        try:
            return "heron" in self._tokenizer.apply_chat_template(messages, tokenize=False)
        except Exception:  # a template is a program of its author
            return False

    def learn(self, pairs: Sequence[Pair]) -> Lora:
        how, encoded = self.training, [self._encoded(pair) for pair in pairs]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(how.seed)
            config = LoraConfig(
                r=how.rank, lora_alpha=how.alpha, target_modules=_TARGETS, lora_dropout=0.0, task_type="CAUSAL_LM"
            )
            self.run_alone()
            self._model = get_peft_model(self._plain, config)
            order = torch.cat([torch.randperm(len(pairs)) for _ in range(math.ceil(self._seen / len(pairs)))])
        learned = [each for each in self._model.parameters() if each.requires_grad]
        optimizer = torch.optim.AdamW(learned, lr=how.learning_rate)
        self._model.train()
        for batch in torch.split(order[: self._seen], how.batch_pairs):
            optimizer.zero_grad()
            for number in batch.tolist():
                pair = encoded[number]
                worked, failed = self._likelihoods(pair)
                loss = _loss(worked / len(pair.worked), failed / len(pair.failed))
                torch.autograd.backward(loss / len(batch))
            optimizer.step()
        self._model.eval()
        with tempfile.TemporaryDirectory() as saved:
            self._model.save_pretrained(saved)
            return read_lora(Path(saved), self.base)

    @property
    def _seen(self) -> int:
        return self.training.updates * self.training.batch_pairs

    def run_alone(self) -> None:
        if self._model is not self._plain:
            self._plain = self._model.unload()
            self._model = self._plain

    def run(self, weights: bytes, manifest: LanguageModelManifest) -> None:
        """Run a published version over this base."""
        self.run_alone()
        with tempfile.TemporaryDirectory() as saved:
            (Path(saved) / WEIGHTS).write_bytes(weights)
            (Path(saved) / "adapter_config.json").write_bytes(config_of(manifest))
            self._model = PeftModel.from_pretrained(self._plain, saved)
        self._model.eval()

    def margins(self, pairs: Sequence[Pair]) -> list[float]:
        """log p(worked) - log p(failed) of each pair, in nats."""
        found = []
        for pair in pairs:
            worked, failed = self._likelihoods(self._encoded(pair), gradient=False)
            found.append(float(worked - failed))
        return found

    def perplexity(self) -> float:
        """Perplexity on a fixed unrelated text."""
        ids = self._ids(_UNRELATED.read_text(encoding="utf-8"))[: self.training.most_tokens]
        with torch.no_grad():
            scores = self._model(ids[None]).logits[0, :-1].log_softmax(-1)
        return math.exp(-float(scores.gather(1, ids[1:, None]).mean()))

    def _likelihoods(self, pair: _Encoded, *, gradient: bool = True) -> tuple[Tensor, Tensor]:
        """Log-probabilities of both calls, in one pass: neither call sees the other."""
        start, length = len(pair.prompt), len(pair.worked)
        ids = torch.cat(pair)
        sees = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
        sees[start + length :, start : start + length] = False
        positions = torch.arange(len(ids))
        positions[start + length :] -= length
        mask = torch.zeros(sees.shape).masked_fill(~sees, torch.finfo(torch.float32).min)
        with torch.set_grad_enabled(gradient):
            where = {"attention_mask": mask[None, None], "position_ids": positions[None]}
            answer = self._model(ids[None], **where, logits_to_keep=len(ids) - start + 1)
            scores: Tensor = answer.logits[0].log_softmax(-1)
            # The prompt's last token foretells either call's first one.
            foretold = torch.cat((scores[:1], scores[length + 1 : -1]))
            worked = scores[:length].gather(1, pair.worked[:, None]).sum()
            failed = foretold.gather(1, pair.failed[:, None]).sum()
        self._pace()
        return worked, failed

    def _encoded(self, pair: Pair) -> _Encoded:
        most = self.training.most_tokens
        prompt = self._text(pair.prompt, add_generation_prompt=True)
        calls = []
        for call in (pair.worked, pair.failed):
            whole = self._text([*pair.prompt, call])
            # A template may write earlier messages differently once another follows.
            said = whole.removeprefix(prompt) if whole.startswith(prompt) else self._text([call])
            calls.append(self._ids(said)[: most // 2])
        return _Encoded(self._ids(prompt)[-(most - max(map(len, calls))) :], *calls)

    def _text(self, messages: Messages, **options: bool) -> str:
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False, **options))

    def _ids(self, text: str) -> Tensor:
        ids: Tensor = self._tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids[0]
        return ids
