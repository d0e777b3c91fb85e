"""Read an `Advice` for what is measured of it. The only module of the measure that knows how advice is made."""

from __future__ import annotations

import sys
from typing import NamedTuple

from fleetlore.advice.advice import Advice
from fleetlore.advice.sources import WAYS_OUT
from fleetlore.fingerprint.names import FailureKind

__all__ = ["Told", "told"]


class Shown(NamedTuple):
    """One thing that an advice showed.

    Attributes:
        source: that it comes from (`fleetlore.advice.sources.SOURCES`).
        text: what a model reads of it, without the fence.
        names: that it brings, lower case.
        warns: it speaks against the call that is about to be made.
    """

    source: str
    text: str
    names: tuple[str, ...] = ()
    warns: bool = False


class Told(NamedTuple):
    """What one advice said.

    Attributes:
        risk: P(the call fails); None where the fleet cannot tell, and without a call.
        warned: it speaks against the call.
        named: the failure that it warns of.
        way_out: how others got past the last failure; empty for nothing.
        text: all of it, as a model reads it.
        shown: the single things in it.
    """

    risk: float | None
    warned: bool
    named: FailureKind | None
    way_out: str
    text: str
    shown: tuple[Shown, ...] = ()


def told(advice: Advice) -> Told:
    """What an advice says."""
    warning = next((tip for tip in advice.tips if tip.chance is not None), None)
    way_out = next((tip for tip in advice.tips if tip.source in WAYS_OUT and tip.chance is None), None)
    return Told(
        advice.risk,
        warned=warning is not None,
        named=None if warning is None else FailureKind(warning.kind, warning.rejected),
        way_out="" if way_out is None else way_out.text,
        # Many calls get the same text: kept once.
        text=sys.intern(advice.text),
        shown=tuple([Shown(tip.source, tip.text, tip.brings, tip.chance is not None) for tip in advice.tips]),
    )
