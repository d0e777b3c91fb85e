from __future__ import annotations

from pathlib import Path

import orjson

from benchmarks.docs.advice import merged


def test_figures_of_one_source_are_means_and_what_is_missing_is_left_out(tmp_path: Path) -> None:
    reports = (
        {"advice": {"made": {"A": {"calls": 10, "auroc": 0.5, "way_out": None}}}, "other": 1},
        {"advice": {"made": {"A": {"calls": 20, "auroc": 0.7, "way_out": 0.2}}, "else": {"T": {"calls": 3}}}},
    )
    files = [tmp_path / f"{number}.json" for number in range(len(reports))]
    for file, report in zip(files, reports, strict=True):
        file.write_bytes(orjson.dumps(report))
    found = merged([str(file) for file in files])
    assert found == {
        "advice": {"made": {"A": {"calls": 15, "auroc": 0.6, "way_out": 0.2}}, "else": {"T": {"calls": 3}}}
    }
