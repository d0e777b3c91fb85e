"""List all boundaries, by name."""

from __future__ import annotations

from tests.fuzz import otlp, records, relay
from tests.fuzz.boundary import Boundary

BOUNDARIES: dict[str, Boundary] = {
    each.name: each for each in (records.RECORDS, relay.HTTP, relay.NATIVE, relay.HOOKS, otlp.OTLP)
}
