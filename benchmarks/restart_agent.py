"""Start an agent on a stack's folder and print what that took: `python -m benchmarks.restart_agent FOLDER PATTERNS`."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path

from fleetlore import Fleet

WAIT_SECONDS = 900.0


async def start(folder: str, patterns: int) -> dict[str, float]:
    """Wait until the agent is ready, and then until it has read all patterns."""
    cpu, began = time.process_time(), time.monotonic()
    async with Fleet("newcomer", data=folder, ready_seconds=WAIT_SECONDS) as fleet:
        figures = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu}
        known = fleet.replica.index.patterns
        async with asyncio.timeout(WAIT_SECONDS):
            while len(known) + fleet.left_out < patterns:
                await asyncio.sleep(0.1)
        figures["all_cpu_seconds"] = time.process_time() - cpu
        return {**figures, "peak_mb": _peak_mb(), "held": len(known), "left_out": fleet.left_out}


def _peak_mb() -> float:
    """The peak of this program: `getrusage` counts the memory of the parent before the `exec`, too."""
    (kilobytes,) = re.findall(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kilobytes) * 1024 / 1e6


if __name__ == "__main__":
    print(json.dumps(asyncio.run(start(sys.argv[1], int(sys.argv[2])))))
