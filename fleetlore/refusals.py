"""Count refusals by reason, and log few of a flood."""

from __future__ import annotations

import logging
import threading
from collections import Counter

__all__ = ["refusals", "refused"]

log = logging.getLogger(__name__)

_counting = threading.Lock()
_refused: Counter[str] = Counter()


def refused(reason: str, detail: str) -> None:
    """Count a refusal, and log the first, second, fourth, eighth … of a reason. `reason`: from a bounded set, fit for a
    metric label.
    """
    with _counting:
        _refused[reason] += 1
        count = _refused[reason]
    if count & (count - 1) == 0:
        log.warning("refused %d times so far (%s): %s", count, reason, detail)


def refusals() -> dict[str, int]:
    with _counting:
        return dict(_refused)
