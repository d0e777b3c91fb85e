from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch

import fleetlore
from benchmarks.random_adapters import random_weights
from fleetlore.errors import AdapterRefused, ModelUnavailable
from fleetlore.risk.network import (
    MAX_TOKENS,
    RiskNetwork,
    adapter_shapes,
    base_from_bytes,
    base_to_bytes,
    check_structure,
    load_base,
    merge_lora,
    probe_answers,
    read_adapter,
)


def vectors(*shape: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape, 256, generator=torch.Generator().manual_seed(3)), dim=-1)


def test_no_token_sees_a_later_one() -> None:
    network = load_base().network
    session = vectors(1, MAX_TOKENS)
    changed = session.clone()
    changed[0, 7:] = -changed[0, 7:]
    with torch.inference_mode():
        before, after = network(session), network(changed)
    assert torch.allclose(before.step[0, :7], after.step[0, :7], atol=1e-6)
    assert not torch.allclose(before.step[0, 7:], after.step[0, 7:], atol=1e-3)


def test_signatures_have_length_one() -> None:
    with torch.inference_mode():
        signature = load_base().network(vectors(2, 9)).signature
    assert signature.shape == (2, 9, 64)
    assert torch.allclose(signature.norm(dim=-1), torch.ones(2, 9), atol=1e-5)


def test_fold_changes_a_copy_only() -> None:
    base = load_base()
    before = base_to_bytes(base.network)
    merged = merge_lora(base.network, read_adapter(random_weights(1), 8), 2.0)
    assert base_to_bytes(base.network) == before
    assert probe_answers(merged, 1) != probe_answers(base.network, 1)


def test_a_base_survives_the_round_trip() -> None:
    data = base_to_bytes(RiskNetwork())
    assert base_to_bytes(base_from_bytes(data).network) == data


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-5], lambda d: b"", lambda d: safetensors.torch.save({"x": torch.ones(2)})]
)
def test_a_damaged_base_is_refused(damage) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ModelUnavailable, match="damaged"):
        base_from_bytes(damage(base_to_bytes(RiskNetwork())))


def test_the_shipped_base_is_the_one_its_card_describes() -> None:
    folder = Path(fleetlore.__file__).parent / "base"
    assert load_base().sha256 in (folder / "README.md").read_text()
    assert (folder / "procedural.safetensors").stat().st_size <= 2_000_000


def tensors() -> dict[str, torch.Tensor]:
    return read_adapter(random_weights(1), 8)


def test_a_right_adapter_passes() -> None:
    check_structure(tensors(), 8)


def test_a_missing_tensor_is_refused() -> None:
    some = tensors()
    some.popitem()
    with pytest.raises(AdapterRefused, match="structure"):
        check_structure(some, 8)


@pytest.mark.parametrize("key", ["base_model.model.last_norm.weight", "last_norm.weight", "_module.x"])
def test_a_key_beyond_the_list_is_refused(key: str) -> None:
    with pytest.raises(AdapterRefused, match="structure"):
        check_structure(tensors() | {key: torch.ones(128).half()}, 8)


def test_a_wrong_rank_is_refused() -> None:
    with pytest.raises(AdapterRefused, match="structure"):
        check_structure(tensors(), 4)


def test_another_precision_is_refused() -> None:
    with pytest.raises(AdapterRefused, match="structure"):
        check_structure({name: tensor.float() for name, tensor in tensors().items()}, 8)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_refused(value: float) -> None:
    some = tensors()
    next(iter(some.values()))[0, 0] = value
    with pytest.raises(AdapterRefused, match="not_finite"):
        check_structure(some, 8)


def test_the_list_is_what_peft_saves() -> None:
    peft = pytest.importorskip("peft")
    network = peft.get_peft_model(
        RiskNetwork(), peft.LoraConfig(r=8, target_modules=["q", "k", "v", "o", "up", "down"])
    )
    saved = peft.get_peft_model_state_dict(network)
    assert {name: tuple(tensor.shape) for name, tensor in saved.items()} == adapter_shapes(8)
