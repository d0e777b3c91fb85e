"""Compute the figures of the demo from what happened at the agents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.demo.agents import Run, repeated


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds."""

    p50: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Percentiles:
        """By nearest rank. Raises ValueError for no values."""
        if not values:
            raise ValueError("no values")
        ordered = sorted(values)
        return cls(*(round(ordered[math.ceil(share * len(ordered)) - 1], 3) for share in (0.5, 0.99)))


@dataclass(frozen=True, slots=True)
class Comparison:
    isolated: float
    fleet: float


@dataclass(frozen=True, slots=True)
class Version:
    """The newest signed version of an adapter, which all agents run.

    Attributes:
        ordinal: its number; `published`: how many versions the trainer has published.
        metrics: the figures of the gate.
    """

    version: str
    ordinal: int
    published: int
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The last line of `make demo ARGS=--json`.

    Attributes:
        events: sent by the agents and acknowledged by the broker.
        events_per_second: from the first agent's start until the pipeline had drained. The agents' own pace sets it:
            they think before each call; `benchmarks.replay` shows what the pipeline can take.
        patterns: failure patterns stored, of all three levels.
        adapter_versions: versions published by the trainer.
        hints: the hints that most sessions read, with the number of sessions.
        call_model: the version that the agents swapped in.
        policy: the version that the server of their language model took; None without PyTorch.
        agents_on_latest_adapter: agents that run the version of the call model that the channel points to.
        time_to_advice_seconds: from the first time a failure pattern was met, by whichever agent, until another agent
            that had joined by then could look it up without a network; over all (pattern, other agent) pairs.
        repeat_failures: failures by a rule of the world that an agent of the same arm had broken before, without
            network errors.
        success_rate: share of sessions whose goal was reached, as the environment checks it.
        time_to_first_event_seconds: from the start of the stack's processes until an agent could look up the first
            lesson.
    """

    agents: int
    sessions: int
    events: int
    events_per_second: float
    patterns: int
    judgments: int
    memory_items: int
    adapter_versions: int
    agents_on_latest_adapter: int
    time_to_advice_seconds: Percentiles
    time_to_first_event_seconds: float
    repeat_failures: Comparison
    success_rate: Comparison
    call_model: Version
    hints: tuple[tuple[str, int], ...] = ()
    policy: Version | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def table(self) -> list[tuple[str, str, str]]:
        """Return rows (figure, isolated agents, fleet); a column is empty if its arm has no such figure."""
        advice = self.time_to_advice_seconds
        return [
            ("agents × sessions", "", f"{self.agents} × {self.sessions // self.agents}"),
            ("repeated failures", f"{self.repeat_failures.isolated:.0f}", f"{self.repeat_failures.fleet:.0f}"),
            ("sessions that succeeded", f"{self.success_rate.isolated:.0%}", f"{self.success_rate.fleet:.0%}"),
            ("events", "", f"{self.events} ({self.events_per_second:.0f}/s)"),
            ("failure patterns", "", str(self.patterns)),
            ("judgments", "", str(self.judgments)),
            ("memory items", "", str(self.memory_items)),
            ("adapter versions", "", str(self.adapter_versions)),
            ("agents on the latest adapter", "", f"{self.agents_on_latest_adapter} of {self.agents}"),
            ("failure → advice elsewhere", "", f"p50 {advice.p50:.2f} s, p99 {advice.p99:.2f} s"),
            ("stack start → first lesson", "", f"{self.time_to_first_event_seconds:.1f} s"),
        ]

    def summary(self) -> list[str]:
        """Return in plain words what the fleet learned, what that saved, and which versions the agents swapped in."""
        alone, fleet = self.repeat_failures.isolated, self.repeat_failures.fleet
        lines = ["What the fleet learned, as the agents read it:"]
        lines += [f"  {hint}  ({count} sessions)" for hint, count in self.hints]
        lines += [
            "What it saved:",
            f"  {alone:.0f} repeated failures alone, {fleet:.0f} as a fleet; {self.success_rate.isolated:.0%} of the "
            f"sessions succeeded alone, {self.success_rate.fleet:.0%} as a fleet",
            "What the agents swapped in between two calls, signed by the trainer:",
            f"  version {self.call_model.ordinal} of the call model, {self.call_model.version[:12]}, "
            f"on {self.agents_on_latest_adapter} of {self.agents} agents",
        ]
        if self.policy is not None:
            metrics = self.policy.metrics
            lines += [
                "What the server of their language model took:",
                f"  version {self.policy.ordinal} of the policy adapter, {self.policy.version[:12]}, a LoRA trained by "
                f"contrast: on {metrics['pairs_later']:.0f} later pairs log p(worked) - log p(failed) is "
                f"{metrics['margin']:.1f}, {metrics['margin_base']:.1f} without it; perplexity elsewhere changes by "
                f"{100 * metrics['perplexity_change']:+.1f} %",
            ]
        return lines


def advice_times(first_met: dict[str, tuple[float, str]], learners: Sequence[Any]) -> list[float]:
    """Return the seconds from each pattern's first failure until each other agent that had joined knew it.

    A learner is a `benchmarks.demo.arms.Member`.
    An agent that never learned of a pattern counts as infinitely late, so that a lost lesson cannot improve the figure.
    """
    return [
        max(0.0, learned - met) if (learned := learner.learned_at(pattern)) is not None else math.inf
        for pattern, (met, agent) in first_met.items()
        for learner in learners
        if learner.name != agent and learner.joined <= met
    ]


def compare_repeats(isolated: Sequence[Run], fleet: Sequence[Run]) -> Comparison:
    return Comparison(*(repeated(fault for run in runs for fault in run.faults) for runs in (isolated, fleet)))


def compare_success(isolated: Sequence[Run], fleet: Sequence[Run]) -> Comparison:
    return Comparison(*(round(sum(run.succeeded for run in runs) / len(runs), 3) for runs in (isolated, fleet)))
