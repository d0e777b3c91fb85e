"""Define the risk network: a small causal transformer over a session's goal, actions and outcomes.

Tokens are text vectors in the order `goal, action 1, outcome 1, action 2, …`. At every action token the network gives
P(the step fails) and a signature of how, and, once an adapter has learned it, P(the step is ineffective). At every
outcome token it gives P(the session fails).

The projections are plain `nn.Linear` modules and the blocks are our own: in `nn.TransformerEncoder`, eval mode takes a
fused path that reads raw weights, so a LoRA adapter on it silently does nothing.
"""

from __future__ import annotations

import copy
import hashlib
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

import numpy as np

from fleetlore.errors import AdapterRefused, ModelUnavailable
from fleetlore.retrieval.encoder import Vectors

try:
    import safetensors.torch
    import torch
    from torch import Tensor, nn
    from torch.nn import functional
except ImportError as error:
    raise ModelUnavailable("the risk model needs: pip install 'fleetlore[adapters]'") from error

TEXT_DIMENSIONS = 256
WIDTH = 128
BLOCKS = 2
HEADS = 4
SIGNATURE = 64
MAX_STEPS = 16
MAX_TOKENS = 1 + 2 * MAX_STEPS
PROBE_SESSIONS = 4
LORA_TARGETS = ("q", "k", "v", "o", "up", "down")
GOAL, ACTION, OUTCOME = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Reading:
    """What the network says at each of n tokens of b sessions.

    step: logits (b, n) that the step fails, meaningful at action tokens.
    session: logits (b, n): at outcome tokens that the session fails, at action tokens that this step is ineffective.
        One head for both: a new tensor would make the adapters of older bases foreign.
    signature: (b, n, 64), rows of length 1, meaningful at action tokens.
    """

    step: Tensor
    session: Tensor
    signature: Tensor


class Block(nn.Module):
    """Pre-norm attention and feed-forward, each projection an `nn.Linear` of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.q = nn.Linear(WIDTH, WIDTH)
        self.k = nn.Linear(WIDTH, WIDTH)
        self.v = nn.Linear(WIDTH, WIDTH)
        self.o = nn.Linear(WIDTH, WIDTH)
        self.before_feed = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, n, _ = x.shape
        h = self.before_attention(x)
        q, k, v = (project(h).view(b, n, HEADS, -1).transpose(1, 2) for project in (self.q, self.k, self.v))
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.o(attended.transpose(1, 2).reshape(b, n, WIDTH))
        fed: Tensor = self.down(functional.gelu(self.up(self.before_feed(x))))
        return x + fed


class RiskNetwork(nn.Module):
    """0.46 M parameters; see the module's docstring for what goes in and what comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(TEXT_DIMENSIONS, WIDTH)
        self.kinds = nn.Embedding(3, WIDTH)
        self.positions = nn.Embedding(MAX_TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.last_norm = nn.LayerNorm(WIDTH)
        self.step_head = nn.Linear(WIDTH, 1)
        self.session_head = nn.Linear(WIDTH, 1)
        self.signature_head = nn.Linear(WIDTH, SIGNATURE)

    def forward(self, vectors: Tensor) -> Reading:
        """Read sessions: vectors (b, n, 256), n <= 33. Padding goes to the right, where no earlier token can look."""
        n = vectors.shape[1]
        positions = torch.arange(n)
        mask = torch.ones(n, n, dtype=torch.bool).tril()
        kinds = torch.where(positions == 0, GOAL, torch.where(positions % 2 == 1, ACTION, OUTCOME))
        # Text vectors have length 1, so their entries are ~1/16: scaled, they weigh as much as the embeddings.
        x = self.project(vectors * math.sqrt(TEXT_DIMENSIONS)) + self.kinds(kinds) + self.positions(positions)
        for block in self.blocks:
            x = block(x, mask)
        x = self.last_norm(x)
        return Reading(
            step=self.step_head(x).squeeze(-1),
            session=self.session_head(x).squeeze(-1),
            signature=functional.normalize(self.signature_head(x), dim=-1),
        )


@dataclass(frozen=True, slots=True)
class Base:
    """The frozen network that every adapter of one lineage builds on, and the hash that names it."""

    network: RiskNetwork
    sha256: str


def base_from_bytes(data: bytes) -> Base:
    """Build the base from safetensors bytes. Raises ModelUnavailable when they do not hold this network."""
    network = RiskNetwork()
    try:
        tensors = safetensors.torch.load(data)
        network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, strict=True)
    except Exception as error:  # safetensors and torch raise several unrelated types for a damaged file
        raise ModelUnavailable(f"the base of the risk model is damaged: {error}") from error
    network.requires_grad_(False).eval()
    return Base(network, hashlib.sha256(data).hexdigest())


def base_to_bytes(network: RiskNetwork) -> bytes:
    """Half precision: it flips no decision and halves what a wheel carries."""
    tensors = {name: tensor.detach().half().contiguous() for name, tensor in network.state_dict().items()}
    return bytes(safetensors.torch.save(tensors))


def load_base(file: str = "") -> Base:
    """The base in `file` (made by `fleetlore pretrain`), or the one that ships with the release.

    Shared by the process and never written to. Raises ModelUnavailable.
    """
    with _SHARING:  # many agents of one process start at once, each on a thread
        return _load_base(file)


_SHARING = threading.Lock()


@lru_cache(maxsize=2)
def _load_base(file: str) -> Base:
    shipped = resources.files("fleetlore") / "base" / "procedural.safetensors"
    try:
        return base_from_bytes(Path(file).expanduser().read_bytes() if file else shipped.read_bytes())
    except OSError as error:
        made_by = f"{file} (FLEETLORE_BASE)" if file else "fleetlore/base/procedural.safetensors"
        command = "fleetlore pretrain" if file else "python -m benchmarks.pretrain"
        raise ModelUnavailable(f"{made_by} cannot be read: {error.strerror}; `{command}` makes it") from error


def adapter_key(block: int, target: str, factor: str) -> str:
    """Name of one adapter tensor, as peft saves it. `factor` is `A` or `B`."""
    return f"base_model.model.blocks.{block}.{target}.lora_{factor}.weight"


def adapter_shapes(rank: int) -> dict[str, tuple[int, int]]:
    """The exact tensors of an adapter of this rank: any other key, shape or number of tensors is refused."""
    shapes: dict[str, tuple[int, int]] = {}
    for block in range(BLOCKS):
        for target in LORA_TARGETS:
            wide = {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
            inputs, outputs = wide.get(target, (WIDTH, WIDTH))
            shapes[adapter_key(block, target, "A")] = (rank, inputs)
            shapes[adapter_key(block, target, "B")] = (outputs, rank)
    return shapes


def read_adapter(data: bytes, rank: int) -> dict[str, Tensor]:
    """Parse and check the tensors of an adapter. Raises AdapterRefused (`structure`, `not_finite`)."""
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(data)
    except Exception as error:  # safetensors raises its own untyped errors for damaged bytes
        raise AdapterRefused("structure", f"not safetensors: {error}") from error
    check_structure(tensors, rank)
    return tensors


def check_structure(tensors: Mapping[str, Tensor], rank: int) -> None:
    """Refuse anything but the exact tensors of an adapter, half precision, all finite.

    peft's own loader takes a key of the base model and overwrites frozen weights with it, without a word.
    Raises AdapterRefused (`structure`, `not_finite`).
    """
    expected = adapter_shapes(rank)
    if tensors.keys() != expected.keys():
        odd = sorted(tensors.keys() ^ expected.keys())
        raise AdapterRefused("structure", f"{len(odd)} unexpected or missing tensors, first: {odd[0][:200]}")
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != expected[name] or tensor.dtype != torch.float16:
            raise AdapterRefused("structure", f"{name} is {tensor.dtype} {tuple(tensor.shape)}")
        if not bool(torch.isfinite(tensor).all()):
            raise AdapterRefused("not_finite", name)


def merge_lora(base: RiskNetwork, tensors: Mapping[str, Tensor], scale: float) -> RiskNetwork:
    """A copy of `base` with W + scale * B @ A in place of each target's weight. The base is not touched."""
    merged = copy.deepcopy(base)
    with torch.no_grad():
        for index in range(BLOCKS):
            for target in LORA_TARGETS:
                a, b = (tensors[adapter_key(index, target, factor)].float() for factor in "AB")
                weight = merged.get_submodule(f"blocks.{index}.{target}").get_parameter("weight")
                weight.add_(scale * (b @ a))
    return merged


def probe_inputs(seed: int) -> Vectors:
    """The fixed inputs of `seed`: 4 made-up sessions, float32 (4, 33, 256)."""
    # RandomState, because numpy promises that its stream never changes between releases.
    noise = np.random.RandomState(seed).standard_normal((PROBE_SESSIONS, MAX_TOKENS, TEXT_DIMENSIONS))
    inputs: Vectors = (noise / np.linalg.norm(noise, axis=-1, keepdims=True)).astype(np.float32)
    return inputs


def probe_answers(network: RiskNetwork, seed: int) -> tuple[float, ...]:
    """What the network answers to the inputs of `seed`: P(step fails) at each token."""
    with torch.inference_mode():
        answers = torch.sigmoid(network(torch.from_numpy(probe_inputs(seed))).step)
    return tuple(round(value, 6) for value in answers.flatten().tolist())
