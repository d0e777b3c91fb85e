"""Update the adapter over its frozen base: contrastive LoRA training.

The loss is BCE on every step, on whether the call was ineffective (`models.data.ineffective`) and on the session's end;
a logistic loss on pairs of calls, one that failed and one that worked after the like (Burges et al. 2005); a supervised
contrast over *what went wrong with which tool* (Khosla et al. 2020; plain success against failure makes worse
signatures than no contrast); and on rehearsed sessions the squared distance to the published version's logits (Hinton
et al. 2015), which keeps old tools known. Sessions weigh as `models.data.sample_weights` says. An update is a pure
function of the adapter, the examples and the seed: AdamW starts fresh in each.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import safetensors.torch
import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor
from torch.nn import functional

from fleetlore.risk.network import LORA_TARGETS, Base, Reading, RiskNetwork, merge_lora, read_adapter
from models.data.dataset import UNLABELLED, Batch, Example, collate
from models.data.sample_weights import sample_weights

# What a call comes after: a success, a failure, or nothing.
FIRST = 2
STATES = (0, 1, FIRST)


@dataclass(frozen=True, slots=True)
class TrainerConfig:
    """How to learn. Manifests hold these names, so they never change.

    Each step learns from `step_sessions` windows of the batch, half of them new: as good as steps on the whole batch at
    half the rate, for a quarter of the time. There are `steps` of them, and more to read `passes` times what long
    sessions have beyond two windows.

    Attributes:
        new_sessions, replayed_sessions: the halves of a batch.
        vain_weight: of the loss on ineffective calls.
        pair_weight: of the loss on pairs of calls.
    """

    rank: int = 8
    alpha: int = 16
    learning_rate: float = 2e-3
    steps: int = 7
    passes: int = 6
    new_sessions: int = 32
    replayed_sessions: int = 32
    step_sessions: int = 16
    vain_weight: float = 1.0
    pair_weight: float = 1.0
    contrast_weight: float = 1.0
    distillation_weight: float = 0.1
    temperature: float = 0.1
    clip_norm: float = 1.0
    seed: int = 0

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    def steps_of(self, later: int) -> int:
        """Steps of an update, `later` of whose new windows are not among the first two of their session."""
        return self.steps + math.ceil(self.passes * later / max(1, self.step_sessions // 2))


@dataclass(frozen=True, slots=True)
class Losses:
    """Means over the steps of one update, and the number of steps."""

    step: float
    session: float
    contrast: float
    distillation: float
    ineffective: float
    pairs: float
    steps: int


class ContrastiveTrainer:
    """One lineage of adapters over one base. Not thread-safe."""

    def __init__(self, base: Base, config: TrainerConfig | None = None) -> None:
        self.base = base
        self.config = config or TrainerConfig()
        # torch's generator is global: forked, so that a trainer neither disturbs its surroundings nor depends on them.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            lora = LoraConfig(
                r=self.config.rank, lora_alpha=self.config.alpha, target_modules=list(LORA_TARGETS), lora_dropout=0.0
            )
            # Built through bytes: peft wraps modules in place, and the base is shared.
            network = RiskNetwork()
            network.load_state_dict(base.network.state_dict())
            self._model = get_peft_model(network, lora)
        self._parameters = [p for p in self._model.parameters() if p.requires_grad]
        self._teacher: RiskNetwork | None = None

    def resume(self, weights: bytes) -> None:
        """Continue from a published version, which becomes the teacher of rehearsed sessions.

        Raises:
            AdapterRefused: the bytes are no such adapter.
        """
        tensors = read_adapter(weights, self.config.rank)
        set_peft_model_state_dict(self._model, {name: tensor.float() for name, tensor in tensors.items()})
        self._teacher = merge_lora(self.base.network, tensors, self.config.scale)

    def weights(self) -> bytes:
        """The adapter as published: safetensors, half precision. Equal adapters give equal bytes."""
        tensors = get_peft_model_state_dict(self._model)
        return bytes(
            safetensors.torch.save({name: tensors[name].detach().half().contiguous() for name in sorted(tensors)})
        )

    def network_of(self, weights: bytes) -> RiskNetwork:
        """The network of an adapter of this lineage."""
        return merge_lora(self.base.network, read_adapter(weights, self.config.rank), self.config.scale)

    def update(
        self, new: Sequence[Example], rehearsed: Sequence[Example], stale: Collection[str] = frozenset()
    ) -> Losses:
        """Take AdamW steps on new and rehearsed examples together. The order of either does not matter.

        Args:
            stale: tools whose rules have changed since the published version, which does not teach their steps.
        """
        fresh, old = (sorted(examples, key=lambda example: example.key) for examples in (new, rehearsed))
        examples = [*fresh, *old]
        weights = sample_weights(examples)
        optimizer = torch.optim.AdamW(self._parameters, lr=self.config.learning_rate, weight_decay=0.0, fused=True)
        totals = torch.zeros(6)
        self._model.train()
        steps = self.config.steps_of(sum(example.place.window >= 2 for example in fresh))
        for rows in self._rows(len(fresh), len(old), steps):
            part = [examples[row] for row in rows]
            batch = collate(part, [weights[row] for row in rows])
            reading = self._model(batch.vectors)
            losses = self._losses(reading, batch)
            ineffective = ineffective_loss(reading, batch)
            pairs = pair_loss(reading, batch)
            taught = torch.tensor([row >= len(fresh) for row in rows]).unsqueeze(1) & _known_steps(part, batch, stale)
            distillation = self._distance(reading, batch, taught)
            loss = (
                losses[0]
                + losses[1]
                + self.config.vain_weight * ineffective
                + self.config.pair_weight * pairs
                + self.config.contrast_weight * losses[2]
                + self.config.distillation_weight * distillation
            )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self._parameters, self.config.clip_norm)
            optimizer.step()
            totals += torch.stack([*losses, distillation, ineffective, pairs]).detach()
        self._model.eval()
        return Losses(*[*(totals / steps).tolist(), steps])

    def _losses(self, reading: Reading, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        return batch_losses(reading, batch, self.config.temperature)

    def _rows(self, fresh: int, old: int, steps: int) -> Iterator[list[int]]:
        """Rows of the batch for each step: shuffled piles of new and of rehearsed ones, refilled when empty."""
        chance = random.Random(f"{self.config.seed}/{fresh}/{old}")
        half = max(1, self.config.step_sessions // 2)
        piles: tuple[list[int], list[int]] = [], []
        for _ in range(steps):
            rows: list[int] = []
            for pile, first, count in ((piles[0], 0, fresh), (piles[1], fresh, old)):
                share = min(count, half if fresh and old else 2 * half)
                if len(pile) < share:
                    pile[:] = chance.sample(range(first, first + count), count)
                rows += pile[:share]
                del pile[:share]
            yield rows

    def _distance(self, reading: Reading, batch: Batch, taught: Tensor) -> Tensor:
        rows = taught.any(dim=1)
        if self._teacher is None or not bool(rows.any()):
            return torch.zeros(())
        with torch.inference_mode():
            known = self._teacher(batch.vectors[rows])
        step = (reading.step[rows, 1::2] - known.step[:, 1::2].clone())[taught[rows]]
        # At actions the session's head predicts whether the call is ineffective, at outcomes how the session ends.
        ineffective, session = (
            (reading.session[rows, first::2] - known.session[:, first::2].clone())[taught[rows]] for first in (1, 2)
        )
        distance: Tensor = step.square().mean() + ineffective.square().mean() + session.square().mean()
        return distance


def batch_losses(reading: Reading, batch: Batch, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Losses of the steps, of the sessions' ends and of the contrast; each 0 without a label for it."""
    labelled = batch.failed != UNLABELLED
    if bool(labelled.any()):
        step = functional.binary_cross_entropy_with_logits(
            reading.step[:, 1::2][labelled],
            batch.failed[labelled].float(),
            weight=batch.weight.unsqueeze(1).expand_as(labelled)[labelled],
        )
    else:
        step = torch.zeros(())
    real = real_steps(batch)
    ends = batch.session_failed.unsqueeze(1).expand_as(real)[real]
    session = functional.binary_cross_entropy_with_logits(
        reading.session[:, 2::2][real], ends, weight=batch.weight.unsqueeze(1).expand_as(real)[real]
    )
    contrasted = batch.contrast != UNLABELLED
    contrast = supervised_contrast(
        reading.signature[:, 1::2][contrasted],
        batch.contrast[contrasted],
        temperature,
        batch.weight.unsqueeze(1).expand_as(contrasted)[contrasted],
    )
    return step, session, contrast


def ineffective_loss(reading: Reading, batch: Batch) -> Tensor:
    """Loss of the calls that are labelled effective or ineffective; 0 without one."""
    known = batch.ineffective != UNLABELLED
    if not bool(known.any()):
        return torch.zeros(())
    return functional.binary_cross_entropy_with_logits(
        reading.session[:, 1::2][known],
        batch.ineffective[known].float(),
        weight=batch.weight.unsqueeze(1).expand_as(known)[known],
    )


def pair_loss(reading: Reading, batch: Batch) -> Tensor:
    """Mean loss of ranking a call that failed above one that worked, from the same state; 0 without a pair.

    A state is what the call comes after: nothing, a success or a failure. A pair weighs what both of its calls weigh,
    so that no agent has more of the pairs than its share of the batch.
    """
    odds, known = reading.step[:, 1::2], batch.failed != UNLABELLED
    first = torch.full((len(odds), 1), FIRST)
    before = torch.cat([first, batch.failed[:, :-1]], dim=1)
    weight = batch.weight.unsqueeze(1).expand_as(known)
    total = torch.zeros(())
    for state in STATES:
        failed, worked = (known & (before == state) & (batch.failed == label) for label in (1, 0))
        pairs = weight[failed].unsqueeze(1) * weight[worked].unsqueeze(0)
        if pairs.numel():
            margins = odds[failed].unsqueeze(1) - odds[worked].unsqueeze(0)
            total = total + (pairs * functional.softplus(-margins)).sum() / pairs.sum()
    return total / len(STATES)


def supervised_contrast(
    signatures: Tensor, classes: Tensor, temperature: float, weight: Tensor | None = None
) -> Tensor:
    """SupCon (Khosla et al. 2020, L_out): signatures (n, d) of length 1, classes and weights of anchors (n,).

    0 when no two share a class.
    """
    others = ~torch.eye(len(classes), dtype=torch.bool)
    alike = (classes.unsqueeze(0) == classes.unsqueeze(1)) & others
    anchors = alike.any(dim=1)
    if not bool(anchors.any()):
        return signatures.sum() * 0.0
    similarity = (signatures @ signatures.T) / temperature
    log_share = similarity - torch.logsumexp(similarity.masked_fill(~others, float("-inf")), dim=1, keepdim=True)
    positive = log_share.masked_fill(~alike, 0.0).sum(dim=1)[anchors] / alike.sum(dim=1)[anchors]
    return -(positive if weight is None else positive * weight[anchors]).mean()


def version_of(weights: bytes) -> str:
    """The version of an adapter: the sha256 of its weights."""
    return hashlib.sha256(weights).hexdigest()


def _known_steps(examples: Sequence[Example], batch: Batch, stale: Collection[str]) -> Tensor:
    """(b, s): True at labelled steps of tools that are not stale."""
    known = batch.failed != UNLABELLED
    if stale:
        for row, example in enumerate(examples):
            for place, tool in enumerate(example.tools):
                if tool in stale:
                    known[row, place] = False
    return known


def real_steps(batch: Batch) -> Tensor:
    """(b, s): True at steps, False at padding."""
    return torch.arange(batch.failed.shape[1]).unsqueeze(0) < batch.length.unsqueeze(1)
