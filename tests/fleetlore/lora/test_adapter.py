"""Which adapters of a language model are taken, and that those that are do what they did."""

import errno
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.errors import AdapterRefused, ConfigError, ModelUnavailable
from fleetlore.lora.adapter import CONFIG, WEIGHTS, base_of, read_lora, read_tensors, write_tensors
from fleetlore.lora.follow import LoraSlot, PolicyFollower
from tests.lora import MakeLora, language_model, manifest_of


@pytest.mark.parametrize("config", [{}, {"use_rslora": True, "target_modules": ["down_proj"]}])
def test_a_kept_version_answers_as_the_adapter_that_was_trained(
    config: dict[str, Any], base_folder: Path, make_lora: MakeLora, tmp_path: Path
) -> None:
    import torch  # takes seconds

    trained, base = make_lora(**config), base_of(base_folder)
    words = torch.arange(12).reshape(1, -1)
    lora = read_lora(trained, base)
    slot = LoraSlot(tmp_path / "kept")
    kept = slot.load(lora.weights, manifest_of(lora, base.sha256))
    answers = []
    for folder in (trained, kept):
        model = language_model(base_folder, folder).eval()
        with torch.no_grad():
            answers.append(model(words).logits)
    assert torch.equal(*answers)
    assert not torch.equal(answers[0], language_model(base_folder).eval()(words).logits)


def test_the_folder_is_what_the_documentation_of_vllms_filesystem_resolver_asks_for(
    base_folder: Path, make_lora: MakeLora, tmp_path: Path
) -> None:
    """It takes CACHE_DIR/NAME if `adapter_config.json` there is of a LoRA over the model that is served."""
    base = base_of(base_folder)
    lora = read_lora(make_lora(), base)
    manifest = manifest_of(lora, base.sha256, base="served-name")
    kept = LoraSlot(tmp_path / "cache").load(lora.weights, manifest)
    assert kept == tmp_path / "cache" / manifest.version
    config = orjson.loads((kept / CONFIG).read_bytes())
    assert (config["peft_type"], config["base_model_name_or_path"]) == ("LORA", "served-name")
    assert {each.name for each in kept.iterdir()} == {CONFIG, WEIGHTS}


def test_the_same_weights_at_another_scale_are_another_version(base_folder: Path, make_lora: MakeLora) -> None:
    base = base_of(base_folder)
    one, other = (read_lora(make_lora(lora_alpha=alpha), base).weights for alpha in (8, 16))
    assert one != other and read_tensors(one).data == read_tensors(other).data
    assert read_lora(make_lora(lora_alpha=8), base).weights == one


@pytest.mark.parametrize(
    "config",
    [{"modules_to_save": ["lm_head"]}, {"use_dora": True}, {"rank_pattern": {"q_proj": 2}}, {"bias": "all"}],
    ids=str,
)
def test_more_than_plain_lora_is_refused(config: dict[str, Any], base_folder: Path, make_lora: MakeLora) -> None:
    with pytest.raises(AdapterRefused, match=f"structure: {CONFIG}: {next(iter(config))}"):
        read_lora(make_lora(**config), base_of(base_folder))


def changed(folder: Path, **tensors: Any) -> Path:
    """The adapter with tensors added, replaced or (None) taken out."""
    import safetensors.torch

    there = safetensors.torch.load_file(folder / WEIGHTS) | {
        name.replace("__", "."): tensor for name, tensor in tensors.items()
    }
    kept = {name: tensor for name, tensor in there.items() if tensor is not None}
    safetensors.torch.save_file(kept, folder / WEIGHTS)
    return folder


Q = "base_model__model__model__layers__0__self_attn__q_proj__"


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        (lambda torch: {f"{Q}lora_A__weight": None}, "structure"),
        (lambda torch: {f"{Q}lora_A__weight": torch.full((4, 16), torch.nan)}, "not_finite"),
        (lambda torch: {f"{Q}lora_A__weight": torch.full((4, 16), torch.inf, dtype=torch.bfloat16)}, "not_finite"),
        (lambda torch: {f"{Q}lora_A__weight": torch.zeros(4, 16, dtype=torch.int32)}, "structure"),
        (lambda torch: {f"{Q}lora_A__weight": torch.zeros(4, 8)}, "foreign"),
        (lambda torch: {f"{Q}lora_A__weight": torch.zeros(3, 16)}, "structure"),
        (lambda torch: {"base_model__model__lm_head__weight": torch.zeros(64, 16)}, "structure"),
        (lambda torch: {f"base_model__model__x__lora_{side}__weight": torch.zeros(4, 4) for side in "AB"}, "foreign"),
    ],
)
def test_tensors_that_do_not_belong_are_refused(
    tensors: Callable[[Any], dict[str, Any]], reason: str, base_folder: Path, make_lora: MakeLora
) -> None:
    import torch

    with pytest.raises(AdapterRefused) as refused:
        read_lora(changed(make_lora(), **tensors(torch)), base_of(base_folder))
    assert refused.value.reason == reason


def test_a_pickle_is_not_looked_at(base_folder: Path, make_lora: MakeLora) -> None:
    folder = make_lora()
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")
    with pytest.raises(ConfigError, match="holds no LoRA"):
        read_lora(folder, base_of(base_folder))


def test_a_base_is_named_by_its_content(base_folder: Path, tmp_path: Path) -> None:
    whole = base_of(base_folder)
    assert whole.sha256 == hashlib.sha256((base_folder / "model.safetensors").read_bytes()).hexdigest()
    language_model(base_folder).save_pretrained(tmp_path, max_shard_size="4KB")
    parts = base_of(tmp_path)
    assert parts.sha256 != whole.sha256 and parts.shapes == whole.shapes
    (next(tmp_path.glob("*.safetensors"))).write_bytes(b"x" * 100)
    with pytest.raises(ConfigError, match="damaged"):
        base_of(tmp_path)


names = st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__")


@pytest.mark.long  # PyTorch takes seconds to import
@given(
    st.dictionaries(names, st.lists(st.integers(0, 4), max_size=3), max_size=5),
    st.sampled_from(["float32", "float16", "bfloat16"]),
)
def test_a_file_is_read_and_written_in_one_form(shapes: dict[str, list[int]], dtype: str) -> None:
    import safetensors.torch
    import torch

    kind = getattr(torch, dtype)
    saved = safetensors.torch.save({name: torch.ones(shape, dtype=kind) for name, shape in shapes.items()})
    once = write_tensors(read_tensors(saved))
    assert write_tensors(read_tensors(once)) == once
    assert {name: list(tensor.shape) for name, tensor in safetensors.torch.load(once).items()} == shapes


@pytest.mark.parametrize(
    "changes", [{"alpha": 80.0}, {"base_sha256": "0" * 64}, {"targets": ("q_proj",)}, {"tensors": {}}]
)
def test_weights_that_are_not_what_their_manifest_says_are_not_kept(
    changes: dict[str, Any], base_folder: Path, make_lora: MakeLora, tmp_path: Path
) -> None:
    base = base_of(base_folder)
    lora = read_lora(make_lora(), base)
    with pytest.raises(AdapterRefused) as refused:
        LoraSlot(tmp_path / "kept").load(lora.weights, manifest_of(lora, base.sha256, **changes))
    assert refused.value.reason == "structure"
    assert not (tmp_path / "kept").exists()


def test_the_folder_holds_the_running_version_alone(base_folder: Path, make_lora: MakeLora, tmp_path: Path) -> None:
    base, slot = base_of(base_folder), LoraSlot(tmp_path / "kept")
    for seed in (0, 1, 1):
        lora = read_lora(make_lora(seed), base)
        manifest = manifest_of(lora, base.sha256)
        slot.apply(manifest, slot.load(lora.weights, manifest))
        assert [each.name for each in (tmp_path / "kept").iterdir()] == [slot.version]
    slot.reset()
    assert slot.current is None and not list((tmp_path / "kept").iterdir())


@pytest.fixture
def version(base_folder: Path, make_lora: MakeLora) -> tuple[bytes, Any]:
    base = base_of(base_folder)
    lora = read_lora(make_lora(), base)
    return lora.weights, manifest_of(lora, base.sha256)


def test_a_folder_that_another_process_serves_from_stays(version: tuple[bytes, Any], tmp_path: Path) -> None:
    first = LoraSlot(tmp_path).load(*version)
    opened = (first / WEIGHTS).stat().st_ino
    second = LoraSlot(tmp_path).load(*version)
    assert second == first and (second / WEIGHTS).stat().st_ino == opened


def test_a_full_disk_keeps_nothing(version: tuple[bytes, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    kept = tmp_path / "kept"
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(AdapterRefused, match="No space left") as refused:
        LoraSlot(kept).load(*version)
    assert refused.value.reason == "unwritable" and not list(kept.iterdir())


def test_what_lies_in_the_folder_already_is_not_believed(version: tuple[bytes, Any], tmp_path: Path) -> None:
    planted = tmp_path / version[1].version
    planted.mkdir()
    (planted / CONFIG).write_text('{"auto_mapping": {"parent_library": "evil"}}')
    (planted / "more.py").write_text("")
    kept = LoraSlot(tmp_path).load(*version)
    assert sorted(each.name for each in kept.iterdir()) == [CONFIG, WEIGHTS]
    assert orjson.loads((kept / CONFIG).read_bytes())["base_model_name_or_path"] == "tiny"


def test_without_the_extra_it_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ModelUnavailable, match=r"pip install 'fleetlore\[adapters\]'"):
        PolicyFollower(tmp_path)
