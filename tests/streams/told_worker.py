"""Run a worker that tells its state at SIGUSR1: `python -m tests.streams.told_worker HOURS FILE`.

For a failure that does not come twice. What the worker and its Kafka client log goes to FILE too, the client's below
CRITICAL included, which a worker keeps to itself. Its wall clock is HOURS ahead.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from typing import Any

from fleetlore.cli.main import main
from fleetlore.clock import SystemClock
from streams.runtime import worker
from streams.runtime.app import FleetApp


class ToldApp(FleetApp):
    """The app of this process, which is the only one."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        signal.signal(signal.SIGUSR1, lambda *_: logging.getLogger("told").warning("%s", told(self)))


def told(app: Any) -> str:
    """What each partition has come to, and what every task waits for."""
    pump, ledger = app._pump, app._ledger
    client = pump._consumer
    assignment = client._subscription.subscription.assignment
    lines = [
        f"open {app._open}, stopping {app.should_stop}, lease {app._lease.holds}, generation {pump.generation}",
        f"begun {pump._begun}, member {pump._member}, fetching {pump.fetching}, paused {client.paused()}",
        f"fetcher in flight {client._fetcher._in_flight}, records {list(client._fetcher._records)}",
        *(f"feed {sorted(each.topics)[:1]}: {each.places} places, free {each.free}" for each in pump._feeds.values()),
        *(f"{name}: {vars(client._coordinator)[name]!r}" for name in COORDINATOR),
    ]
    for tp in sorted(assignment.tps if assignment else ()):
        state = assignment.state_value(tp)
        lines.append(
            f"{tp.topic}[{tp.partition}] leader {client._client.cluster.leader_for_partition(tp)} "
            f"position {state._position} status {state._status} highwater {state.highwater} lso {state.lso} | "
            f"read {pump._fetched.get(tp)} committed {pump._committed.get(tp)} | "
            f"done {ledger._positions.get(tp)} allowed {ledger._pending.get(tp)} settled {ledger._committed.get(tp)} "
            f"held {ledger._held.get(tp)}"
        )
    lines += [f"{task.get_name()}: {waits(task.get_coro())}" for task in asyncio.all_tasks(app.loop)]
    return "\n".join(lines)


def waits(coroutine: Any) -> str:
    """What a task waits in, from the outside to the inside."""
    places = []
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        places.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        coroutine = coroutine.cr_await
    return " > ".join(places)


COORDINATOR = (
    "coordinator_id",
    "generation",
    "member_id",
    "_pending_exception",
    "_rejoin_needed_fut",
    "_coordination_task",
    "_heartbeat_task",
    "_commit_refresh_task",
    "_commit_lock",
)


if __name__ == "__main__":
    handler = logging.FileHandler(sys.argv.pop())
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    for logger in ("aiokafka", "told", "streams", "faust"):
        logging.getLogger(logger).addHandler(handler)
    ahead = 3600.0 * int(sys.argv.pop())
    # Not `time.time` itself: gRPC would take the time by which a call must end from it and compare that with its own.
    SystemClock.now = staticmethod(lambda: time.time() + ahead)  # type: ignore[method-assign]
    logging.getLogger("aiokafka").setLevel(logging.INFO)
    logging.getLogger("aiokafka").propagate = False
    worker.FleetApp = ToldApp  # type: ignore[misc]
    sys.argv.append("worker")
    main()
