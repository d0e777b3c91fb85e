"""Train the retrieval adapter: contrastive LoRA of the static encoder, by peft.

The encoder's vectors pass through two projections, one for queries and one for answers, that begin as the identity and
stay frozen; the LoRA of both is what is learned, by InfoNCE (van den Oord et al. 2018) over batches of pairs. What
stands in a batch beside a pair is a negative, and so is one *hard* negative a query: a case that is like it by words
and does not hold what it lacked. Cases that hold it count as neither. A version is a pure function of cases and seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import safetensors.numpy
import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from torch import Tensor, nn
from torch.nn import functional

from fleetlore.retrieval.adapter import SIDES, Ranking, RetrievalAdapter, tensor_shapes
from fleetlore.retrieval.encoder import Encoder, Vectors
from models.adapter.pairs import Case, Memory

__all__ = ["TrainedRetrieval", "train"]

_PREFIX = "base_model.model."
# Of the cases that are likest to a query by words, those among which its hard negative is drawn.
_HARD_AMONG = 25
# No logit: the row's own softmax leaves it out.
_NEITHER = -1e4


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """How to learn. `temperature` divides the cosines of the loss."""

    rank: int = 8
    alpha: int = 8
    steps: int = 300
    batch_pairs: int = 96
    learning_rate: float = 1e-3
    temperature: float = 0.1
    seed: int = 0

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


class TrainedRetrieval(NamedTuple):
    """A version: its weights as published, and how many cases with an answer it learned from."""

    weights: bytes
    pairs: int
    config: TrainingConfig

    @property
    def version(self) -> str:
        return hashlib.sha256(self.weights).hexdigest()

    def adapter(self, dimensions: int) -> RetrievalAdapter:
        """The version as agents apply it."""
        return RetrievalAdapter(self.weights, self.config.rank, self.config.scale, dimensions)


class _Pairs(NamedTuple):
    """Of each case with an answer: its place, answers, hard negatives, and (n,) which cases hold what it lacked."""

    place: int
    answers: list[int]
    hard: list[int]
    holding: npt.NDArray[np.bool_]


class _Projections(nn.Module):
    def __init__(self, dimensions: int) -> None:
        super().__init__()
        for side in SIDES:
            layer = nn.Linear(dimensions, dimensions, bias=False)
            nn.init.eye_(layer.weight)
            self.add_module(side, layer)

    def forward(self, side: str, vectors: Tensor) -> Tensor:
        return functional.normalize(self.get_submodule(side)(vectors), dim=1)


def train(
    cases: Sequence[Case],
    encoder: Encoder,
    config: TrainingConfig | None = None,
    pace: Callable[[], object] = lambda: None,
) -> TrainedRetrieval | None:
    """Learn a version from cases; None where none of them is answered by another.

    Some seconds of one core. `pace`: called after each step.
    """
    config = config or TrainingConfig()
    pairs = _pairs(cases, encoder, pace)
    if not pairs:
        return None
    queries, answers = (
        torch.from_numpy(encoder.encode([getattr(case, side) for case in cases])) for side in ("query", "answer")
    )
    # torch's generator is global: forked, so that a trainer neither disturbs its surroundings nor depends on them.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        lora = LoraConfig(r=config.rank, lora_alpha=config.alpha, target_modules=list(SIDES), lora_dropout=0.0)
        model = get_peft_model(_Projections(encoder.dimensions), lora)
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=config.learning_rate)
    chance = np.random.default_rng(config.seed)
    for _ in range(config.steps):
        drawn = chance.choice(len(pairs), min(config.batch_pairs, len(pairs)), replace=False)
        loss = _loss(model, queries, answers, [pairs[each] for each in drawn], chance, config.temperature)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        pace()
    return TrainedRetrieval(_weights(model, config.rank, encoder.dimensions), len(pairs), config)


def _pairs(cases: Sequence[Case], encoder: Encoder, pace: Callable[[], object]) -> list[_Pairs]:
    memory, ranking = Memory(cases), Ranking([case.answer for case in cases], encoder)
    found = []
    for place, case in enumerate(cases):
        pace()
        answers = sorted(memory.answers(case))
        if not answers:
            continue
        holding = np.zeros(len(cases), np.bool_)
        holding[list(memory.holding(case))] = True
        likest = np.argsort(-ranking.by_words(case.query), kind="stable")[:_HARD_AMONG].tolist()
        hard = [
            each
            for each in likest
            if not holding[each] and cases[each].tool == case.tool and cases[each].session != case.session
        ]
        found.append(_Pairs(place, answers, hard, holding))
    return found


def _loss(
    model: nn.Module,
    queries: Tensor,
    answers: Tensor,
    batch: Sequence[_Pairs],
    chance: np.random.Generator,
    temperature: float,
) -> Tensor:
    """InfoNCE of a batch (b pairs): logits (b, b + hard negatives), the diagonal being right."""
    chosen = [each.answers[chance.integers(len(each.answers))] for each in batch]
    chosen += [each.hard[chance.integers(len(each.hard))] for each in batch if each.hard]
    logits = model("query", queries[[each.place for each in batch]]) @ model("answer", answers[chosen]).T / temperature
    neither = np.stack([each.holding for each in batch])[:, chosen]
    np.fill_diagonal(neither, False)
    return functional.cross_entropy(logits.masked_fill(torch.from_numpy(neither), _NEITHER), torch.arange(len(batch)))


def _weights(model: nn.Module, rank: int, dimensions: int) -> bytes:
    """The LoRA as it is published: equal adapters give equal bytes."""
    tensors = get_peft_model_state_dict(model)
    named: dict[str, Vectors] = {
        name: tensors[_PREFIX + name].detach().numpy().astype(np.float32) for name in tensor_shapes(rank, dimensions)
    }
    return bytes(safetensors.numpy.save(dict(sorted(named.items()))))
