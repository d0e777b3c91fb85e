from __future__ import annotations

import sys

import pytest
import torch

from benchmarks.pretrain import world_episodes, world_judgments
from benchmarks.random_adapters import manifest_for
from fleetlore.adapters.signatures import SigningKey, public_keys, verify_manifest
from fleetlore.errors import AdapterRefused, ConfigError, ModelUnavailable
from fleetlore.risk.encoder import shared_encoder
from fleetlore.risk.network import load_base, read_adapter
from fleetlore.wire.adapter_manifest import Place, PrivateSteps, ProceduralManifest
from models.adapter.admission import Cadence
from models.adapter.learner import Learner
from models.adapter.lora_trainer import TrainerConfig
from models.adapter.private import PrivacyConfig, PrivateTrainer, epsilon_of, session_losses
from models.adapter.reproduce import reproduce
from models.data.dataset import Example, collate

pytest.importorskip("opacus")


def examples(count: int, seed: int = 0) -> list[Example]:
    return world_episodes(shared_encoder(), 72, count, seed=seed)


def trainer(seed: int | None = 1, **privacy: float) -> PrivateTrainer:
    return PrivateTrainer(load_base(), TrainerConfig(steps=2), PrivacyConfig(**privacy), seed=seed)


def test_what_a_session_says_does_not_depend_on_the_others() -> None:
    some = examples(6)
    private = trainer()
    batch = collate(some)
    together = torch.stack(session_losses(private._hooked(batch.vectors), batch))
    for row, example in enumerate(some):
        alone = collate([example])
        single = torch.stack(session_losses(private._hooked(alone.vectors), alone))
        assert torch.allclose(together[:, row : row + 1], single, atol=1e-5)


def test_no_session_says_more_than_the_clip_norm() -> None:
    private = trainer(clip_norm=0.01)
    batch = collate(examples(12)[:8])
    private._hooked.train()
    step, session = session_losses(private._hooked(batch.vectors.requires_grad_()), batch)
    (step + session).sum().backward()
    norms = torch.stack([p.grad_sample.flatten(1).norm(dim=1) for p in private._parameters]).norm(dim=0)
    assert norms.shape == (8,) and float(norms.max()) > 0.01
    private._optimizer.clip_and_accumulate()
    total = torch.stack([p.summed_grad.norm() for p in private._parameters]).norm()
    assert float(total) <= 8 * 0.01 + 1e-6


def test_updates_change_the_adapter_and_the_ledger_alone() -> None:
    private, before = trainer(), load_base().network.state_dict()["step_head.weight"].clone()
    untrained = private.weights()
    losses = private.update(examples(12), [])
    assert losses.contrast == losses.distillation == 0 and losses.step > 0
    changed, first = read_adapter(private.weights(), 8), read_adapter(untrained, 8)
    assert all(not torch.equal(changed[name], first[name]) for name in changed)
    assert torch.equal(load_base().network.state_dict()["step_head.weight"], before)
    assert private.ledger.spent == (PrivateSteps(1.0, 1.0, 2),) and private.ledger.epsilon > 0


def test_other_sessions_cost_a_session_nothing() -> None:
    private = trainer()
    private.update(examples(12), [])
    once = private.ledger
    private.update(examples(12, seed=5), [])
    assert private.ledger == once
    with pytest.raises(ConfigError, match="rehearses nothing"):
        private.update(examples(12, seed=6), examples(2))


def test_of_updates_that_cost_differently_the_costliest_counts() -> None:
    dear, cheap = trainer(noise=1.0), trainer(noise=2.0)
    dear.update(examples(4), [])
    cheap.take_over(dear.ledger)
    cheap.update(examples(4, seed=5), [])
    assert cheap.ledger == dear.ledger
    cheap.update(examples(4, seed=6), [])
    dear.take_over(trainer(noise=2.0).ledger)
    dear.update(examples(4, seed=6), [])
    assert cheap.ledger == dear.ledger


def test_noise_is_secret_unless_a_seed_is_given() -> None:
    made = []
    for seed in (1, 1, None, None):
        private = trainer(seed)
        private.update(examples(12), [])
        made.append(private.weights())
    assert made[0] == made[1] and len({*made[1:]}) == 3


def test_epsilon_is_that_of_the_literature() -> None:
    # Abadi et al. 2016, figure 2: q = .01, sigma = 4, 10,000 steps, delta 1e-5: epsilon 1.26 by moments.
    assert epsilon_of([PrivateSteps(4.0, 0.01, 10_000)], 1e-5) == pytest.approx(1.26, abs=0.25)
    assert epsilon_of([], 1e-5) == 0.0
    assert epsilon_of([PrivateSteps(2.0, 0.25, 70)], 1e-5) < epsilon_of([PrivateSteps(1.0, 0.25, 70)], 1e-5)


def test_a_private_version_says_so_and_holds_nothing_of_single_sessions() -> None:
    learner = Learner(
        "default", load_base(), shared_encoder(), TrainerConfig(steps=1), Cadence(), privacy=PrivacyConfig(noise=0.6)
    )
    for judgment in world_judgments(72, 120):
        learner.offer(judgment, 0.0)
    while learner.update_due(0.0):
        learner.update(0.0)
    manifest = learner.manifest(learner.candidate(), 1, (), 0.0)
    assert manifest.privacy is not None and manifest.privacy.spent[0][0] == 0.6
    assert manifest.signatures == () and manifest.familiar.centres == ()
    key = SigningKey.from_pem(_pem())
    assert verify_manifest(key.sign(manifest), public_keys(key.public_base64), ProceduralManifest) == manifest
    with pytest.raises(AdapterRefused, match="privacy"):
        reproduce(manifest, None, {}, load_base(), shared_encoder())

    weights = learner.candidate().weights
    ours = manifest_for(weights, "default", privacy=manifest.privacy)
    learner.resume(weights, ours)
    learner.offer(next(iter(world_judgments(72, 1, seed=8))), 0.0)
    again = learner.manifest(learner.candidate(), 2, (), 0.0)
    assert again.privacy == manifest.privacy  # nothing was learned since
    with pytest.raises(ConfigError, match="without privacy"):
        learner.resume(weights, manifest_for(weights, "default"))


def test_what_a_version_holds_is_not_learned_again_after_a_restart() -> None:
    judgments = list(world_judgments(72, 60))

    def started(privacy: PrivacyConfig | None) -> Learner:
        config = TrainerConfig(steps=1)
        return Learner("default", load_base(), shared_encoder(), config, Cadence(), privacy=privacy)

    def offered(learner: Learner) -> int:
        return sum(learner.offer(judgment, 0.0, Place(0, number, 0)) for number, judgment in enumerate(judgments))

    first = started(PrivacyConfig())
    offered(first)
    while first.update_due(0.0):
        first.update(0.0)
    manifest = first.manifest(first.candidate(), 1, (), 0.0)
    assert all(not batch.rehearsed for batch in manifest.batches)
    learned = {Place(*place)[:3] for batch in manifest.batches for place in batch.new}
    second, plain = started(PrivacyConfig()), started(None)
    for learner in (second, plain):
        learner.skip_learned([manifest])
    assert offered(plain) - offered(second) == len(learned) >= 32


def _pem() -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return SigningKey(Ed25519PrivateKey.generate()).to_pem()


@pytest.mark.parametrize("bad", [{"noise": 0.0}, {"noise": float("nan")}, {"clip_norm": -1.0}, {"delta": 1.0}])
def test_bad_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="privacy"):
        PrivacyConfig(**bad)


def test_without_opacus_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus.grad_sample", None)
    with pytest.raises(ModelUnavailable, match=r"fleetlore-server\[privacy\]"):
        trainer()
