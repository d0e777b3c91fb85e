"""Offer public test doubles: what users and the project's own tests stand in for a real fleet, log or clock with."""

from __future__ import annotations

from fleetlore.testing.clock import FakeClock
from fleetlore.testing.log import InMemoryLog, Record

__all__ = ["FakeClock", "InMemoryLog", "Record"]
