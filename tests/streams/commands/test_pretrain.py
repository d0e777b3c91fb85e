from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from benchmarks.random_adapters import manifest_for, random_weights
from benchmarks.rollouts import rollouts
from fleetlore.cli.app import build_app
from fleetlore.errors import AdapterRefused, ModelUnavailable
from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.risk.model import RiskModel
from fleetlore.risk.network import base_to_bytes, load_base
from models.adapter.learner import Learner
from streams.commands.pretrain import register

KEYS = {"file", "card", "sha256", "size_bytes", "seed", "steps", "sessions", "held_out_sessions", "held_out_steps"}
KEYS |= {"held_out_failures", "auroc", "shipped_auroc", "cross_entropy"}


def run(*arguments: str) -> Result:
    app = build_app()
    register(app)
    return CliRunner().invoke(app, ["pretrain", *arguments])


def write(folder: Path, sessions: Iterable[dict[str, Any]]) -> Path:
    """Sessions of a scripted world as logs."""
    folder.mkdir()
    with (folder / "trajectories.jsonl").open("w") as ends, (folder / "steps.jsonl").open("w") as steps:
        for session in sessions:
            names = {"source": "world"} | {name: session[name] for name in ("agent", "session", "task", "goal")}
            outcome = {"success": 1, "failure": 0}.get(session["outcome"])
            print(json.dumps(names | {"outcome": outcome, "label_from": "env_reward"}), file=ends)
            for place, step in enumerate(session["steps"]):
                call = {"tool": step["tool"], "input": json.dumps(step["arguments"]), "output": step["result"]}
                error = {"error": step["error_message"], "step": place, "role": "tool"}
                print(json.dumps(names | call | error), file=steps)
    return folder


@pytest.mark.long
def test_a_base_of_own_logs_knows_them_better_and_is_made_again_to_the_byte(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs", rollouts(70, 160))
    out, again = tmp_path / "own.safetensors", tmp_path / "again.safetensors"
    result = run(str(logs), "--out", str(out), "--passes", "4", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report.keys() == KEYS
    assert report["sessions"] + report["held_out_sessions"] == 160 and report["held_out_sessions"] > 20
    assert report["auroc"] > report["shipped_auroc"] + 0.05
    assert report["size_bytes"] == out.stat().st_size <= 2_000_000
    assert report["sha256"] in out.with_suffix(".md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "own.md", "own.safetensors"]

    assert run(str(logs), "--out", str(again), "--passes", "4").exit_code == 0
    assert again.read_bytes() == out.read_bytes()

    own = load_base(str(out))
    assert own.sha256 == report["sha256"] != load_base().sha256


def test_adapters_and_bases_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.safetensors"
    network = copy.deepcopy(load_base().network)
    network.step_head.bias.data += 1
    file.write_bytes(base_to_bytes(network))
    weights = random_weights(1)
    manifest = manifest_for(weights, "default")
    with pytest.raises(AdapterRefused, match="another base"):
        RiskModel(load_base(str(file))).swap(weights, manifest)
    with pytest.raises(AdapterRefused, match=r"another base.*FLEETLORE_BASE"):
        Learner("default", load_base(str(file)), shared_encoder()).resume(weights, manifest)
    RiskModel(load_base()).swap(weights, manifest)


def test_logs_that_teach_nothing_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "own.safetensors"
    sessions = list(rollouts(70, 100))
    few = run(str(write(tmp_path / "few", sessions[:20])), "--out", str(out))
    assert few.exit_code == 1 and "a base needs 64" in few.stderr
    unknown = run(str(write(tmp_path / "unknown", [s | {"outcome": "?"} for s in sessions])), "--out", str(out))
    assert unknown.exit_code == 1 and "0 sessions" in unknown.stderr
    calm = [s | {"steps": [step | {"error_message": None} for step in s["steps"]]} for s in sessions]
    alike = run(str(write(tmp_path / "alike", calm)), "--out", str(out))
    assert alike.exit_code == 1 and "calls that failed" in alike.stderr
    assert not out.exists()


def test_folders_and_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    result = run(str(tmp_path / "nothing"), "--out", str(tmp_path / "own"))
    assert result.exit_code == 2 and "nothing" in result.stderr
    for odd in ("no/own", "", "own.md"):
        result = run(str(tmp_path), "--out", str(tmp_path / odd))
        assert result.exit_code == 1 and "--out" in result.stderr
    with pytest.raises(ModelUnavailable, match=r"gone.*FLEETLORE_BASE"):
        load_base(str(tmp_path / "gone"))
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"no base")
    with pytest.raises(ModelUnavailable, match="damaged"):
        load_base(str(damaged))
