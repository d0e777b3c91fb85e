"""Updates with differential privacy: DP-SGD (Abadi et al. 2016) on the adapter's parameters, by Opacus.

The unit is the session. Each step draws every session of the batch by itself with the chance `SAMPLE_RATE`, clips what each one says to
`clip_norm` and adds Gaussian noise of `noise` × `clip_norm`. What one session says must depend on no other, so the contrast
(which compares sessions), the distillation and the weights by agent are left out, and of a long session one window is learned.
Neighbours are logs in which one session is replaced by one that says nothing: that it took place is not hidden, nor how many there were.

Every step counts for every session, learned anew or rehearsed: the epsilon of the ledger is of the whole lineage since the base. It
covers the weights, not the gate's figures, which are sums over held-out sessions. Noise and draws come from a seed that is kept
nowhere (torch's generator, which is no cryptographic one), so such a version cannot be made again from the log.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fleetlore.errors import ConfigError, ModelUnavailable
from fleetlore.manifest import PrivacyLedger, PrivateSteps
from fleetlore.network import Base, Reading
from models.episodes import UNLABELLED, Batch, Episode, collate
from models.trainer import ContrastiveTrainer, Losses, TrainerConfig, real_steps

SAMPLE_RATE = 0.25


@dataclass(frozen=True, slots=True)
class PrivacyConfig:
    """How much noise.

    Attributes:
        noise: multiplier: standard deviation of the noise in units of `clip_norm`; above 0.
        clip_norm: greatest length of what one session says, over all parameters.
        delta: of the (epsilon, delta) that the ledger states; well below 1 / sessions.
    """

    noise: float = 1.0
    clip_norm: float = 1.0
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
        """seed: of noise and draws, for tests alone: whoever knows it can take the noise away."""
        super().__init__(base, config)
        try:
            from opacus.grad_sample import GradSampleModule
            from opacus.optimizers import DPOptimizer
        except ImportError as error:
            raise ModelUnavailable("privacy needs: pip install 'fleetlore[privacy]'") from error
        self.privacy = privacy or PrivacyConfig()
        self._chance = torch.Generator().manual_seed(secrets.randbits(63) if seed is None else seed)
        self._spent: list[PrivateSteps] = []
        self._hooked = GradSampleModule(self._model, batch_first=True, loss_reduction="sum")
        self._optimizer = DPOptimizer(
            torch.optim.AdamW(self._parameters, lr=self.config.learning_rate, weight_decay=0.0),
            noise_multiplier=self.privacy.noise,
            max_grad_norm=self.privacy.clip_norm,
            expected_batch_size=1,
            loss_reduction="sum",
            generator=self._chance,
        )

    @property
    def ledger(self) -> PrivacyLedger:
        """What was spent since the base."""
        epsilon = epsilon_of(self._spent, self.privacy.delta)
        return PrivacyLedger(
            epsilon,
            self.privacy.delta,
            self.privacy.clip_norm,
            tuple((s.noise, s.sample_rate, s.steps) for s in self._spent),
        )

    def take_over(self, ledger: PrivacyLedger | None) -> None:
        """Go on from what a published version has spent. Raises ConfigError for one that was made without privacy."""
        if ledger is None:
            raise ConfigError(
                "the version in service was made without privacy, and what it learned cannot be taken back: "
                "revoke it, or switch FLEETLORE_PRIVACY_NOISE off"
            )
        self._spent = [PrivateSteps(*each) for each in ledger.spent]

    def update(
        self, new: Sequence[Episode], rehearsed: Sequence[Episode], stale: Collection[str] = frozenset()
    ) -> Losses:
        """As many private steps as an update has. `stale` is not needed: no version teaches."""
        # Of a session's windows the first one comes last, and is the one that stays.
        windows = sorted([*rehearsed, *new], key=lambda episode: episode.key, reverse=True)
        sessions = list({episode.session: episode for episode in windows}.values())
        self._hooked.train()
        totals = torch.zeros(2)
        for _ in range(self.config.steps):
            drawn = torch.rand(len(sessions), generator=self._chance) < SAMPLE_RATE
            # An empty draw must give a step of noise alone: that nobody was drawn is nobody's to know.
            rows = torch.nonzero(drawn).flatten().tolist() or [0]
            batch = collate([sessions[row] for row in rows])
            # Opacus reads gradients at the inputs of its layers, and warns at each step where there are none.
            step, session = session_losses(self._hooked(batch.vectors.requires_grad_()), batch)
            losses = (step + session) * bool(drawn.any())
            self._optimizer.zero_grad()
            # Per session first, then summed: the mean of a batch would make one session's part depend on the others.
            losses.sum().backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
            totals += torch.stack([step.mean(), session.mean()]).detach()
        self._optimizer.zero_grad()
        self._hooked.eval()
        self._count(PrivateSteps(self.privacy.noise, SAMPLE_RATE, self.config.steps))
        step_mean, session_mean = (totals / self.config.steps).tolist()
        return Losses(step_mean, session_mean, 0.0, 0.0)

    def _count(self, more: PrivateSteps) -> None:
        last = self._spent[-1] if self._spent else None
        if last is not None and (last.noise, last.sample_rate) == (more.noise, more.sample_rate):
            self._spent[-1] = more._replace(steps=last.steps + more.steps)
        else:
            self._spent.append(more)


def epsilon_of(spent: Iterable[PrivateSteps], delta: float) -> float:
    """Epsilon of the subsampled Gaussian mechanism, by Renyi's divergence (Mironov, Talwar and Zhang 2019); 0 of nothing."""
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [tuple(steps) for steps in spent]
    return round(float(accountant.get_epsilon(delta)), 6) if accountant.history else 0.0


def session_losses(reading: Reading, batch: Batch) -> tuple[Tensor, Tensor]:
    """Of each session (b,): mean loss of its labelled steps and of its end, 0 where it has no such label."""
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
