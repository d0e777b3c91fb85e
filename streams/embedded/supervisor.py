"""Run one command and stop it when the parent is gone: `python -m streams.embedded.supervisor COMMAND…`.

The parent holds the other end of the supervisor's standard input. That pipe closes however the parent dies, `kill -9`
included, so no broker or worker outlives the stack that started it. Standard library only: it starts in a few
milliseconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from types import FrameType

_GRACE_SECONDS = 30.0


def main(command: list[str]) -> int:
    """Run `command`; return its exit code (128 + signal if a signal ended it)."""
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    # Set before there is a child: a supervisor that dies of a signal while it starts one would leave it behind.
    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, pass_on)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    for number in early:
        child.send_signal(number)
    threading.Thread(target=_end_with_parent, args=(child,), daemon=True).start()
    code = child.wait()
    return 128 - code if code < 0 else code


def _end_with_parent(child: subprocess.Popen[bytes]) -> None:
    while os.read(0, 4096):
        pass
    child.terminate()
    try:
        child.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
