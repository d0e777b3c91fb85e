from __future__ import annotations

import math
import sys
from pathlib import Path

import orjson
import pytest

from benchmarks.judges import Matrix, ask, kappa_all, main
from fleetlore.wire.trajectory import Trajectory
from tests.build import trajectory, verdict


def test_a_matrix_counts_what_was_said_against_what_was_true() -> None:
    cases = (
        [("failure", "failure")] * 3 + [("failure", "success")] + [("success", "success")] * 4 + [(None, "failure")] * 2
    )
    matrix = Matrix.of((trajectory(ending=truth, reward=1.0), said and verdict(said)) for said, truth in cases)
    assert matrix == (3, 1, 4, 0, 2)
    assert matrix.kappa == pytest.approx((7 / 8 - 0.5) / 0.5)
    assert math.isnan(Matrix(3, 0, 0, 0, 1).kappa)
    assert math.isnan(Matrix(0, 0, 0, 0, 5).kappa)


def test_over_all_sessions_silence_is_never_right() -> None:
    judged = [(trajectory(ending=truth, reward=1.0), verdict(truth)) for truth in ("failure", "success")]
    assert kappa_all(judged) == 1
    assert kappa_all([*judged, (trajectory(ending="failure", reward=0.0), None)]) < 1


def test_no_judge_sees_the_reward() -> None:
    seen: list[Trajectory] = []
    [(whole, said)] = ask(lambda each: seen.append(each), [trajectory(ending="success", reward=1.0)])
    assert (whole.ending, said) == ("success", None)
    assert (seen[0].ending, seen[0].reward) == ("unknown", None)


def test_one_command_prints_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import gzip

    sessions, steps = [], []
    for n in range(6):
        name = {"session": f"s{n}", "agent": f"a{n}", "task": f"t{n}", "goal": "g"}
        sessions.append({**name, "outcome": int(n < 2)})
        error = None if n < 2 else "no such table: x"
        steps.append({**name, "role": "tool", "tool": "sql", "input": "SELECT 1", "output": "1", "error": error})
    for file, lines in (("trajectories", sessions), ("steps", steps)):
        with gzip.open(tmp_path / f"{file}.jsonl.gz", "wb") as out:
            out.write(b"\n".join(map(orjson.dumps, lines)))
    monkeypatch.setattr(sys, "argv", ["judges", str(tmp_path)])
    main()
    [_, line, quiet] = capsys.readouterr().out.splitlines()
    assert line.split()[1:7] == ["rules", "(all)", "6", "33%", "4", "0"]
    assert quiet.split()[:5] == ["(no", "call", "failed)", "2", "100%"]
