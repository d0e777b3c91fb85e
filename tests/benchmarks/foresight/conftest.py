from __future__ import annotations

from tests.make_case import make_case

__all__ = ["make_case"]
