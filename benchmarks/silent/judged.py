"""Count what the product's judges abstain from, with the rewards and without, by domain."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from benchmarks.silent.cases import Case
from models.judge.chain import JudgeChain
from streams.offline.memory_pipeline import run_logs


def abstained(cases: Sequence[Case], seed: int) -> dict[str, dict[str, Any]]:
    """By domain: sessions, those in which no call failed, and of both how many the judges are silent on.

    `rewarded` is with the reward, `hidden` and `hidden_no_error` without it.
    """
    run = asyncio.run(run_logs([case.logged for case in cases], seed=seed, learn=False))
    domains = {case.logged.session: case.domain for case in cases}
    chain, counts = JudgeChain(), dict[str, Counter[str]]()
    for session in run.trajectories:
        count = counts.setdefault(domains[session.session], Counter())
        silent = chain.judge(replace(session, ending="unknown", reward=None)).label == "abstained"
        failed = any(call.failed for call in session.calls)
        count["sessions"] += 1
        count["rewarded"] += chain.judge(session).label == "abstained"
        count["hidden"] += silent
        count["no_error"] += not failed
        count["hidden_no_error"] += silent and not failed
    names = ("sessions", "rewarded", "hidden", "no_error", "hidden_no_error")
    return {domain: {name: counts[domain][name] for name in names} for domain in sorted(counts)}
