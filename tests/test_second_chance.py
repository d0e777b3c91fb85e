"""The second chance of `.ci/run`: few failed tests get one, many do not, nor do those of a run that broke off."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

PLUGIN = "-p", "tests.second_chance"
AGAIN = *PLUGIN, "--last-failed", "--last-failed-no-failures", "none", "--most-failed", "3"


def case(pytester: pytest.Pytester, fail: int, of: int = 5) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    lines = [f"def test_{number}(): assert {number >= fail}" for number in range(of)]
    pytester.makepyfile(test_case="\n".join(lines))


@pytest.mark.parametrize(("failed", "ends"), [(3, pytest.ExitCode.OK), (4, pytest.ExitCode.USAGE_ERROR)])
def test_at_most_three_failed_tests_run_again(pytester: pytest.Pytester, failed: int, ends: pytest.ExitCode) -> None:
    case(pytester, fail=failed)
    assert pytester.runpytest(*PLUGIN).ret == pytest.ExitCode.TESTS_FAILED
    case(pytester, fail=0)
    assert pytester.runpytest(*AGAIN).ret == ends


def test_what_fails_again_fails_the_run(pytester: pytest.Pytester) -> None:
    case(pytester, fail=1)
    pytester.runpytest(*PLUGIN)
    assert pytester.runpytest(*AGAIN).ret == pytest.ExitCode.TESTS_FAILED


def test_a_run_that_broke_off_has_no_second_chance(pytester: pytest.Pytester) -> None:
    case(pytester, fail=1)
    pytester.runpytest(*PLUGIN, "-x")
    case(pytester, fail=0)
    assert pytester.runpytest(*AGAIN).ret == pytest.ExitCode.USAGE_ERROR
