"""Runs one command and ends it when the parent is gone: `python -m streams.guard COMMAND…`.

The parent holds the other end of the guard's standard input. A pipe closes however its holder dies, `kill -9` included, so
no broker or worker outlives the stack that started it. Standard library only: it starts in a few milliseconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from types import FrameType

GRACE_SECONDS = 30.0


def main(command: list[str]) -> int:
    """Run `command`; return its exit code (128 + signal where a signal ended it)."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def pass_on(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, pass_on)
    threading.Thread(target=_end_with_parent, args=(child,), daemon=True).start()
    code = child.wait()
    return 128 - code if code < 0 else code


def _end_with_parent(child: subprocess.Popen[bytes]) -> None:
    while os.read(0, 4096):
        pass
    child.terminate()
    try:
        child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
