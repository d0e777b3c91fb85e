"""A child that ignores SIGTERM is killed together with its supervisor."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import psutil

from streams.embedded.child import Child

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"


async def test_a_role_that_ignores_the_signal_does_not_outlive_its_supervisor(tmp_path: Path) -> None:
    child = Child("deaf", (sys.executable, "-c", DEAF), tmp_path, stop_seconds=0.2)
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


def test_a_supervisor_that_is_ended_while_it_starts_its_command_takes_it_along() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTING], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        try:
            roles = [psutil.Process(pid)]
        except psutil.NoSuchProcess:  # taken along before this line was reached
            roles = []
        code = supervisor.wait(40)
    _, alive = psutil.wait_procs(roles, timeout=30)
    for each in alive:
        each.kill()
    assert not alive
    assert code == 128 + 15
