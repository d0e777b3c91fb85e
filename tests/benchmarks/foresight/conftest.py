from __future__ import annotations

from tests.benchmarks.make_case import make_case

__all__ = ["make_case"]
