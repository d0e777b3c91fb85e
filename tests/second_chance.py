"""Bound the second chance of tests that failed (`-p tests.second_chance`).

One that passes alone is unstable on a busy machine. Many are a defect, and a run that did not come to its end has not
shown that the others pass.
"""

from __future__ import annotations

import pytest

# Whether the last run of all tests came to its end and only tests failed.
_TESTS_FAILED = "second_chance/tests_failed"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--most-failed", type=int, help="With --last-failed: refuse to run more tests than this again")


def pytest_configure(config: pytest.Config) -> None:
    most = config.getoption("--most-failed")
    if most is None or config.cache is None:
        return
    failed = config.cache.get("cache/lastfailed", {})
    if not config.cache.get(_TESTS_FAILED, False):
        raise pytest.UsageError("the run before did not come to its end: no test gets a second chance")
    if len(failed) > most:
        raise pytest.UsageError(f"{len(failed)} tests failed, and at most {most} get a second chance")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    cache = session.config.cache
    if cache is not None and not hasattr(session.config, "workerinput") and not session.config.getoption("lf"):
        cache.set(_TESTS_FAILED, exitstatus == pytest.ExitCode.TESTS_FAILED and not session.shouldfail)
