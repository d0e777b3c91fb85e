"""A child that does not end when it is told to is ended all the same, and not only its guard."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import psutil
import pytest

import streams.child
from streams.child import Child

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"


async def test_a_role_that_ignores_the_signal_does_not_outlive_its_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams.child, "STOP_SECONDS", 0.2)
    child = Child("deaf", (sys.executable, "-c", DEAF), tmp_path)
    await child.start()
    while not (tmp_path / "deaf.log").read_text():
        await asyncio.sleep(0.01)
    (role,) = psutil.Process(child.pid).children()
    await child.stop()
    _, alive = psutil.wait_procs([role], timeout=5)
    assert not alive
