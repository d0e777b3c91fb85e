"""Read an `Advice` for what is measured of it. The only module of the measure that knows how advice is made."""

from __future__ import annotations

import sys
from typing import NamedTuple

from fleetlore.fingerprint.names import FailureKind
from fleetlore.recall.advice import Advice


class Told(NamedTuple):
    """What one advice said.

    Attributes:
        risk: P(the call fails); None where the fleet cannot tell, and without a call.
        warned: it speaks against the call.
        named: the failure that it warns of.
        way_out: how others got past the last failure; empty for nothing.
        text: all of it, as a model reads it.
    """

    risk: float | None
    warned: bool
    named: FailureKind | None
    way_out: str
    text: str


def told(advice: Advice) -> Told:
    """What an advice says."""
    warning, way_out = advice.warning, advice.way_out
    return Told(
        advice.risk,
        warned=warning is not None,
        named=None if warning is None else FailureKind(warning.kind, warning.names),
        way_out="" if way_out is None else way_out.text,
        # Many calls get the same text: kept once.
        text=sys.intern(advice.text),
    )
