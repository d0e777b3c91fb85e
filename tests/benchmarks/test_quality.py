"""The benchmarks of memory run over logged runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import recall
from fleetlore.errors import ConfigError

SMOKE = Path(__file__).parents[3] / "shared" / "data" / "smoke"


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no logged runs"):
        recall.run(True, tmp_path)


@pytest.mark.real_data
@pytest.mark.skipif(not SMOKE.is_dir(), reason=f"the folder of real trajectories is missing: {SMOKE}")
def test_what_others_met_is_found_in_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "SEARCHES", 5)
    report = recall.run(True, SMOKE)
    assert report.figure > 0.5 and report.figure > report.peers["words alone"] - 0.1
    assert {(row.unit, row.name.rpartition(", ")[2]) for row in report.also[0].rows} == {
        ("ms, median", "300 items"),
        ("ms, median", "600 items"),
    }
