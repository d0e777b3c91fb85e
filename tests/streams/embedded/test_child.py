"""A child that does not end when it is told to is ended all the same, and not only its guard."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from streams.embedded import child as child_module
from streams.embedded.child import Child

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"


async def test_a_role_that_ignores_the_signal_does_not_outlive_its_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "STOP_SECONDS", 0.2)
    child = Child("deaf", (sys.executable, "-c", DEAF), tmp_path)
    await child.start()
    while not (tmp_path / "deaf.log").read_text():
        await asyncio.sleep(0.01)
    (role,) = psutil.Process(child.pid).children()
    await child.stop()
    _, alive = psutil.wait_procs([role], timeout=30)
    assert not alive


STARTING = """
import os, signal, subprocess, sys
from streams.embedded import supervisor

class Starting(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        print(self.pid, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)

supervisor.subprocess.Popen = Starting
sys.exit(supervisor.main([sys.executable, "-c", "import time; time.sleep(60)"]))
"""


def test_a_guard_that_is_ended_while_it_starts_its_command_takes_it_along() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as guard:
        assert guard.stdout is not None
        role = psutil.Process(int(guard.stdout.readline()))
        code = guard.wait(40)
    _, alive = psutil.wait_procs([role], timeout=30)
    for each in alive:
        each.kill()
    assert not alive
    assert code == 128 + 15
