"""The benchmarks of the trainer and of what it publishes run to their end; figures of quick runs mean nothing."""

from __future__ import annotations

import importlib

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("name", ["subscribers"])
def test_it_says_what_it_measured(name: str) -> None:
    report = importlib.import_module(f"benchmarks.{name}").run(True)
    for part in report.all:
        assert part.rows and part.unit
