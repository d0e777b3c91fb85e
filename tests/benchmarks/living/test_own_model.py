"""What the agents' own model learns from, and that a LoRA of it is trained, gated and written as it is served."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.living.llm.own_weights import renamed, train
from benchmarks.living.own_model import lessons
from benchmarks.living.past import play_past
from benchmarks.living.sql.world import SqlWorld
from benchmarks.living.world import split
from tests.benchmarks.living.scripted import Scripted, reads_nothing, reads_what_it_is_told


def test_a_call_that_worked_is_to_become_the_first_and_to_follow_the_failure(world: SqlWorld, tmp_path: Path) -> None:
    past_tasks, _ = split(world.tasks, 0, 8)
    with (
        Scripted(reads_what_it_is_told, tmp_path / "teacher.db") as teacher,
        Scripted(reads_nothing, tmp_path / "pupil.db") as pupil,
    ):
        past = play_past(world, past_tasks, teacher, 0)
        found = lessons(world, past, pupil, 0)
        assert lessons(world, past, teacher, 0) == found, "the teacher, told nothing, fails as the pupil does"
    solved = {each.task.id for each in past if each.solved}
    assert {each.task for each in found} == solved and 0 < len(solved) < len(past)
    first, second = found[:2]
    assert first.worked == second.worked and "FROM plant " in first.worked
    assert "FROM plants " in first.failed
    assert second.messages[: len(first.messages)] == first.messages
    (_, called), (_, replied) = second.messages[len(first.messages) :]
    assert called == first.failed and replied.startswith("Error: ") and "plants" in replied
    assert not any("CREATE TABLE" in text for each in found for _, text in each.messages[8:]), "no schema is read"


def test_nothing_is_learned_of_what_the_model_can_do(world: SqlWorld, tmp_path: Path) -> None:
    past_tasks, _ = split(world.tasks, 0, 8)

    def knows(messages: object) -> str:
        return "sql: SELECT label FROM plant UNION SELECT label FROM plant" if "garden" in str(messages) else "sql: no"

    with (
        Scripted(reads_what_it_is_told, tmp_path / "teacher.db") as teacher,
        Scripted(knows, tmp_path / "pupil.db") as pupil,
    ):
        found = lessons(world, play_past(world, past_tasks, teacher, 0), pupil, 0)
    assert found and all(each.task.startswith("harbour") for each in found)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2TokenizerFast

    torch.manual_seed(0)
    folder = tmp_path / "base"
    letters = Tokenizer(BPE({letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}, []))
    letters.pre_tokenizer = ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer = Qwen2TokenizerFast(tokenizer_object=letters)
    tokenizer.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.long
def test_a_version_passes_that_prefers_what_worked(base: Path, tmp_path: Path) -> None:
    asked = [("user", "which dogs")]
    first, second = train(base, [(asked, "plant")] * 30, [([("user", "which cats")], "plant", "vessel")], 1, tmp_path)
    gates = [json.loads((each / "gate.json").read_text()) for each in (first, second)]
    assert [each["passed"] for each in gates] == [True, True]
    assert gates[1]["metrics"]["margin"] > gates[0]["metrics"]["margin"]
    (worse, _) = train(base, [(asked, "vessel")] * 30, [(asked, "plant", "vessel")], 1, tmp_path / "worse")
    assert not json.loads((worse / "gate.json").read_text())["passed"]


@pytest.mark.long
def test_tensors_are_named_as_llama_cpp_does(base: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    (*_, version) = train(base, [([("user", "which dogs")], "plant")], [], 1, tmp_path)
    named = dict(renamed(load_file(version / "adapter_model.safetensors")))
    assert len(named) == 2 * 4 * 2 and named["blk.1.ffn_up.weight.lora_a"].shape == (16, 32)
    assert named["blk.0.attn_v.weight.lora_b"].shape == (16, 16)
