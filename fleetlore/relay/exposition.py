"""Write the relay's metrics in Prometheus' text format: sums over its tenants."""

from __future__ import annotations

from collections.abc import Collection

from fleetlore.agent.fleet import Fleet
from fleetlore.refusals import refusals

__all__ = ["EXPOSITION", "exposition"]

EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


def exposition(fleets: Collection[Fleet], sessions: int) -> str:
    """Return the metrics of these fleets and so many open sessions."""
    figures = {
        ("sent_events_total", "counter", "Events that the broker has."): sum(each.sent for each in fleets),
        ("dropped_events_total", "counter", "Events that were given up."): sum(each.dropped for each in fleets),
        ("waiting_events", "gauge", "Events in the buffer."): sum(each.emitter.waiting for each in fleets),
        ("open_sessions", "gauge", "Sessions whose state is held."): sessions,
        ("loaded_tenants", "gauge", "Tenants whose lore is here."): sum(each.replica.loaded for each in fleets),
    }
    lines = []
    for (name, kind, help), value in figures.items():
        lines += [*_head(name, kind, help), f"fleetlore_relay_{name} {value}"]
    lines += _head("refused_total", "counter", "Requests refused and states forgotten, by reason.")
    lines += [f'fleetlore_relay_refused_total{{reason="{reason}"}} {n}' for reason, n in sorted(refusals().items())]
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str, help: str) -> list[str]:
    return [f"# HELP fleetlore_relay_{name} {help}", f"# TYPE fleetlore_relay_{name} {kind}"]
