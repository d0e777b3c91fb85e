"""One pinned run of a real model, replayed from its kept answers: no model is there to be asked.

The arm `ours` is not among them: its prompts are what the product says, and change with it.
"""

import shutil
from pathlib import Path

import pytest

from benchmarks.living.command import measure
from benchmarks.living.llm.model import Answers, Model
from benchmarks.living.sql.world import SqlWorld

ROOT = Path(__file__).parents[3]
WORLD = ROOT.parent / "shared" / "living" / "world"
ANSWERS = ROOT / "benchmarks" / "living" / "answers.db"


@pytest.mark.skipif(not WORLD.exists(), reason=f"{WORLD} is missing")
def test_what_a_real_model_did_is_counted_again(tmp_path: Path) -> None:
    file = tmp_path / "answers.db"
    shutil.copy(ANSWERS, file)
    with Model("qwen2.5-coder-1.5b", Answers(file), "http://127.0.0.1:9") as nobody:
        report = measure(SqlWorld(WORLD), nobody, ("none", "full"), states=24, sessions=0, seed=0, draws=1)
        assert nobody.asked == 0
    first, after = report["first_call"], report["after_failure"]
    assert report["past"]["sessions"] == 64 and first["none"]["n"] == 24
    # Every model that can read passes this: the schema helps, and the model repeats itself without advice.
    assert first["none"]["works"] < first["full"]["works"] and first["full"]["minus_none"]["low"] > 0
    assert after["none"]["same_call"] > 0.5 and after["none"]["works"] < after["full"]["works"]
