"""Count events in a peer's process and end it with one JSON line when all have come. Standard library only."""

from __future__ import annotations

import json
import os
import time


class Stopwatch:
    """Clocks that start with the first record: joining a group takes seconds and no CPU, and does not count."""

    def __init__(self, events: int) -> None:
        self._expected = events
        self._events = 0
        self._wall = 0.0
        self._cpu = 0.0

    def begin(self) -> None:
        """Before a record is looked at; nothing after the first time."""
        if not self._wall:
            self._wall, self._cpu = time.perf_counter(), time.process_time()

    def count(self, events: int) -> None:
        """These have been worked on. Ends the process with the last one, without waiting for anybody's shutdown."""
        self._events += events
        if self._events >= self._expected:
            said = {
                "events": self._events,
                "seconds": time.perf_counter() - self._wall,
                "cpu_seconds": time.process_time() - self._cpu,
            }
            # On a new line: Faust hides the terminal's cursor, also where there is no terminal.
            print(f"\n{json.dumps(said)}", flush=True)
            os._exit(0)
