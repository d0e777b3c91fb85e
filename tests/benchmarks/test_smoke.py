"""Every benchmark runs to its end and says what it should; figures of quick runs mean nothing."""

import importlib

import pytest

from benchmarks.report import Report

pytestmark = pytest.mark.slow


def quick(name: str) -> Report:
    report: Report = importlib.import_module(f"benchmarks.{name}").run(True)
    for part in report.all:
        assert part.figure > 0
        assert part.rows
    return report


def test_ingest() -> None:
    report = quick("ingest")
    assert set(report.peers) == {"aiokafka + orjson"}
    assert [part.name for part in report.also] == ["stack"]


def test_the_stages_and_the_script_by_hand_end_with_the_same() -> None:
    """Otherwise the run raises: the script would do less."""
    (thermometer,) = importlib.import_module("benchmarks.same_work").run(True).also
    assert thermometer.figure > 1


def test_backfill() -> None:
    assert quick("backfill").unit == "× real time"


def test_scale() -> None:
    assert quick("scale").unit == "× the rate of one worker"
