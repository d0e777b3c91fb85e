"""Hear a judge only where its record lets it be heard, as the pipeline does (`models.judge.record`).

Sessions come in an order drawn by hash, and half of them have a reward. What the judge says of those is measured by it;
of the others its verdict counts, if the record that it has by then in their family of tools bears it out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from benchmarks.pipeline import EmptyStore
from fleetlore.stats.hashing import drawn, stable_hash
from fleetlore.wire.trajectory import Trajectory, Verdict
from models.judge.chain import RewardJudge
from models.judge.record import tool_family
from sinks.metrics import Metrics
from streams.stages.s3_judgments.judge_records import JudgeRecords, RecordKey

REWARDED: Final = 0.5
TENANT: Final = "default"

Judge = Callable[[Trajectory], Verdict | None]


def always_failed(trajectory: Trajectory) -> Verdict:
    """The trivial rival: every session failed. Its record says where that is nearly true."""
    return Verdict(label="failure", probability=0.01, source="critic", version="always-failed")


def heard(judge: Judge, sessions: Sequence[Trajectory]) -> list[tuple[Trajectory, Verdict | None]]:
    """Each session without a reward, with the verdict on it that counts.

    Args:
        judge: asked without the reward, and held to what a critic is held to.
        sessions: with their endings.
    """
    return asyncio.run(_heard(judge, sessions))


async def _heard(judge: Judge, sessions: Sequence[Trajectory]) -> list[tuple[Trajectory, Verdict | None]]:
    records, environment = JudgeRecords(EmptyStore(), Metrics("benchmark")), RewardJudge()
    found: list[tuple[Trajectory, Verdict | None]] = []
    for each in sorted(sessions, key=lambda one: (stable_hash(one.session), one.session)):
        said = judge(replace(each, ending="unknown", reward=None))
        votes = [] if said is None else [replace(said, source="critic")]
        place = (TENANT, 0, tool_family(each))
        await records.load("judgments", [(RecordKey(TENANT, 0, vote.version, place[2]), "critic") for vote in votes])
        if not drawn(f"reward {each.session}", REWARDED):
            found.append((each, next(iter(records.counted(place, votes)), None)))
        else:
            truth = environment.judge(each)
            records.note(place, each, [*([] if truth is None else [truth]), *votes], [])
    return found
