"""How late the agents know of a new failure is counted right, and what a store sustains."""

import math

from msgspec.structs import replace

from benchmarks.immunity import PLAN, Run, percentile
from benchmarks.immunity_load import Result


def test_how_late_a_failure_is_known_is_counted_over_all_processes_and_without_end_where_nobody_learns() -> None:
    run = Run(PLAN, [Result(met={0: 10.0, 1: 11.0}, learned={2: 12.5}), Result(met={2: 12.0}, learned={0: 10.25})])
    assert run.milliseconds == [250.0, math.inf, 500.0]


def test_what_is_sustained_and_percentiles_are_by_nearest_rank() -> None:
    plan = replace(PLAN, calls_per_second=2_000.0, seconds=10.0)
    for calls, lost, drained, sustained in (
        (20_000, 0, 0.5, True),
        (20_000, 1, 0.5, False),
        (15_000, 0, 0.5, False),
        (20_000, 0, 9.0, False),
        (20_000, 0, None, True),
    ):
        assert Run(plan, [Result(asks=calls, lost=lost)], drained).sustained is sustained, (calls, lost, drained)
    values = [float(value) for value in range(1, 101)]
    assert (percentile(values, 0.50), percentile(values, 0.99), percentile([], 0.5)) == (50.0, 99.0, math.inf)
