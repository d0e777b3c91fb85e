"""Which versions have learned of an erased session."""

from __future__ import annotations

import pytest

from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.adapter_manifest import AdapterManifest, CallsManifest, DataRange
from streams.offline.erase.adapters import has_learned
from streams.offline.erase.found import Found


def found(offset: int | None, ended: float = 100.0) -> Found:
    made = Found()
    made.add("s", 0, ended)
    if offset is not None:
        made.positions["trajectories"] = {(0, offset, 0)}
        made.placed["trajectories"] = {stable_hash("s")}
    return made


def calls(start: int, stop: int, created: float) -> AdapterManifest:
    data = (DataRange("fleetlore.t.trajectories", 0, start, stop),)
    return CallsManifest(
        version="v", ordinal=1, parent=None, tenant="t", size_bytes=1, data=data, sessions=9, agents=2, tools=(),
        metrics={}, created=created, calls=9,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("offset", "ended", "created", "learned"),
    [
        (5, 100.0, 200.0, True),
        (10, 100.0, 200.0, False),  # behind what it read
        (None, 100.0, 200.0, True),  # its record has left the log: taken for one that was read
        (None, 100.0, 50.0, False),  # the version is older
        (None, 0.0, 200.0, False),  # nobody knows such a session
    ],
)
def test_a_call_model_has_learned_what_its_ranges_hold(
    offset: int | None, ended: float, created: float, learned: bool
) -> None:
    version = calls(0, 10, created)
    assert has_learned(version, {"v": version}, found(offset, ended)) is learned
