"""Run one command and stop it when the parent dies: `python -m streams.embedded.supervisor COMMAND…`.

The parent holds the other end of standard input, which closes even on `kill -9`. Only the standard library is imported,
so the start takes milliseconds.
"""

import os
import signal
import subprocess
import sys
import threading
from types import FrameType

_GRACE_SECONDS = 30.0


def main(command: list[str]) -> int:
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    # Set the handlers first: a signal during the start would leave the child behind.
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
