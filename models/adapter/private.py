"""Update with differential privacy: DP-SGD (Abadi et al. 2016) on the adapter's parameters, by Opacus.

The unit is the judged session. Each step takes every session of the batch, clips its gradient to `clip_norm` and adds
Gaussian noise of `noise` × `clip_norm`. A session's gradient must depend on no other, so there is no contrast, no
distillation and no weight by agent, and one window of a long session is learned. Neighbouring logs differ in one
session that is replaced by an empty one: that it took place is not hidden, nor how many there were.

Nothing is rehearsed: a session is in one update of a lineage, and other updates cost it nothing (parallel composition,
McSherry 2009). So the ledger's epsilon is that of the costliest update. Rehearsal would cost every session every
update, and the buffer's draws depend on single sessions. Epsilon covers the weights, not the gate's figures, which are
sums over held-out sessions. The noise comes from a seed that is kept nowhere (torch's generator, which is not
cryptographic), so the log cannot reproduce such a version.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fleetlore.errors import ConfigError, ModelUnavailable
from fleetlore.risk.network import Base, Reading
from fleetlore.wire.adapter_manifest import PrivacyLedger, PrivateSteps
from models.adapter.lora_trainer import ContrastiveTrainer, Losses, TrainerConfig, real_steps
from models.data.dataset import UNLABELLED, Batch, Example, collate

# One long step an update: more steps on the same sessions would need more noise each.
PRIVATE_UPDATES = TrainerConfig(learning_rate=1e-2, steps=1, replayed_sessions=0)


@dataclass(frozen=True, slots=True)
class PrivacyConfig:
    """How much noise.

    Attributes:
        noise: standard deviation of the noise in units of `clip_norm`; above 0.
        clip_norm: largest norm of one session's gradient, over all parameters.
        delta: of the ledger's (epsilon, delta); well below 1 / sessions.
    """

    noise: float = 1.0
    clip_norm: float = 0.3
    delta: float = 1e-5

    def __post_init__(self) -> None:
        if not (0 < self.noise < float("inf") and 0 < self.clip_norm < float("inf") and 0 < self.delta < 1):
            raise ConfigError(f"privacy needs noise and a clip norm above 0 and a delta in 0..1, not {self}")


class PrivateTrainer(ContrastiveTrainer):
    """A lineage whose every update is private. Raises ModelUnavailable without the `[privacy]` extra."""

    def __init__(
        self,
        base: Base,
        config: TrainerConfig | None = None,
        privacy: PrivacyConfig | None = None,
        seed: int | None = None,
    ) -> None:
        """Args:
        seed: of the noise, for tests alone: it allows the noise to be taken away.
        """
        super().__init__(base, config or PRIVATE_UPDATES)
        try:
            from opacus.grad_sample import GradSampleModule
            from opacus.optimizers import DPOptimizer
        except ImportError as error:
            raise ModelUnavailable("privacy needs: pip install 'fleetlore-server[privacy]'") from error
        self.privacy = privacy or PrivacyConfig()
        self._spent: tuple[PrivateSteps, ...] = ()
        self._hooked = GradSampleModule(self._model, batch_first=True, loss_reduction="sum")
        self._optimizer = DPOptimizer(
            torch.optim.AdamW(self._parameters, lr=self.config.learning_rate, weight_decay=0.0),
            noise_multiplier=self.privacy.noise,
            max_grad_norm=self.privacy.clip_norm,
            expected_batch_size=1,
            loss_reduction="sum",
            generator=torch.Generator().manual_seed(secrets.randbits(63) if seed is None else seed),
        )

    @property
    def ledger(self) -> PrivacyLedger:
        """Privacy spent on the session that spent most."""
        epsilon = epsilon_of(self._spent, self.privacy.delta)
        # Plain tuples, as manifests are decoded.
        spent = tuple((steps.noise, steps.sample_rate, steps.steps) for steps in self._spent)
        return PrivacyLedger(epsilon, self.privacy.delta, self.privacy.clip_norm, spent)

    def take_over(self, ledger: PrivacyLedger | None) -> None:
        """Go on from what a published version has spent.

        Raises:
            ConfigError: the version was made without privacy.
        """
        if ledger is None:
            raise ConfigError(
                "the version in service was made without privacy, and what it learned cannot be taken back: "
                "revoke it, or switch FLEETLORE_PRIVACY_NOISE off"
            )
        self._spent = tuple(PrivateSteps(*each) for each in ledger.spent)

    def update(
        self, new: Sequence[Example], rehearsed: Sequence[Example], stale: Collection[str] = frozenset()
    ) -> Losses:
        """Take as many private steps as an update has; `stale` is unused, since no version teaches.

        Raises:
            ConfigError: something is rehearsed.
        """
        if rehearsed:
            raise ConfigError("a private update rehearses nothing: the ledger counts one update for each session")
        # The first window of a session comes last and is the one kept.
        windows = sorted(new, key=lambda example: example.key, reverse=True)
        batch = collate(list({example.session: example for example in windows}.values()))
        self._hooked.train()
        totals = torch.zeros(2)
        for _ in range(self.config.steps):
            # Opacus reads gradients at the inputs of its layers and warns if there are none.
            step, session = session_losses(self._hooked(batch.vectors.requires_grad_()), batch)
            self._optimizer.zero_grad()
            # Summed per session: a mean over the batch would make one session's part depend on the others.
            (step + session).sum().backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
            totals += torch.stack([step.mean(), session.mean()]).detach()
        self._optimizer.zero_grad()
        self._hooked.eval()
        mine = (PrivateSteps(self.privacy.noise, 1.0, self.config.steps),)
        self._spent = max(self._spent, mine, key=lambda spent: epsilon_of(spent, self.privacy.delta))
        step_mean, session_mean = (totals / self.config.steps).tolist()
        return Losses(step_mean, session_mean, 0.0, 0.0, 0.0, 0.0, self.config.steps)


def epsilon_of(spent: Sequence[PrivateSteps], delta: float) -> float:
    """Epsilon of the subsampled Gaussian mechanism by Renyi divergence (Mironov et al. 2019); 0 of nothing."""
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [tuple(steps) for steps in spent]
    return round(float(accountant.get_epsilon(delta)), 6) if accountant.history else 0.0


def session_losses(reading: Reading, batch: Batch) -> tuple[Tensor, Tensor]:
    """For each session (b,): mean loss of its labelled steps and of its end, 0 without such a label."""
    labelled, real = batch.failed != UNLABELLED, real_steps(batch)
    steps = functional.binary_cross_entropy_with_logits(
        reading.step[:, 1::2], batch.failed.clamp(min=0).float(), reduction="none"
    )
    ends = functional.binary_cross_entropy_with_logits(
        reading.session[:, 2::2], batch.session_failed.unsqueeze(1).expand_as(real), reduction="none"
    )
    return _mean(steps, labelled), _mean(ends, real)


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    return (values * counted).sum(dim=1) / counted.sum(dim=1).clamp(min=1)
