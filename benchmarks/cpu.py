"""Read the CPU seconds of the processes that a benchmark has started, by role, and empty caches between runs."""

from __future__ import annotations

import contextlib
import functools
import gc
import re
from collections import Counter

import psutil

# A part of a child's command line, and its role.
ROLES = {
    "fleetlore.cli.main worker": "worker",
    "benchmarks.worker": "worker",
    "fleetlore.cli.main trainer": "trainer",
    "embedded.milvus_server": "Milvus Lite",
    " broker --listener-url": "broker",
    "by_hand.py": "by hand",
}


def cores() -> int:
    return psutil.cpu_count() or 1


def cpu_by_role() -> Counter[str]:
    """User and system CPU seconds so far, of this process' children and theirs that still run."""
    spent: Counter[str] = Counter()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            command = " ".join(process.cmdline())
            role = next((name for mark, name in ROLES.items() if mark in command), None)
            if role is not None:
                times = process.cpu_times()
                spent[role] += times.user + times.system
    return spent


def forget_answers() -> None:
    """Empty the caches of this process, as at its start."""
    re.purge()
    for each in gc.get_objects():
        if type(each) is not functools._lru_cache_wrapper or (each.cache_parameters()["maxsize"] or 0) < 2:
            continue
        if (each.__module__ or "").startswith(("fleetlore.", "models.")):  # `re.Pattern.split` has no module
            each.cache_clear()
