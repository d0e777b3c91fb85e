"""Print AdMem's five rows for every arm, and the bars that ours is held to, missed ones included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.evaluate.figures import BUDGETS
from benchmarks.evaluate.forgetting import Forgetting
from benchmarks.evaluate.runner import Plan, Results
from benchmarks.evaluate.statistics import Cells, interval, paired_difference

OURS = "both"
# The arm whose parts others leave out.
TEXT = "text"
BASELINE = "raw-episodes"
ROWS = (
    "steps",
    *(f"success_{budget:g}x" for budget in BUDGETS),
    "success",
    "transfer_success",
    "recovery",
    "repair",
    "errors",
    "guard_sessions",
    "guard_calls",
    "overhead_percent",
)

RECOVERY_FACTOR = 5.0
RECOVERY_BAR = 0.645
STEPS_BAR = 0.37
FORGETTING_BAR_PP = 1.0
GAIN_BAR_PP = 20.0
OVERHEAD_BAR_PERCENT = 1.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure of ours against what it should be. `met` is None where an arm it needs was not run."""

    figure: float | None
    bar: str
    met: bool | None

    def to_dict(self) -> dict[str, Any]:
        return {"figure": None if self.figure is None else round(self.figure, 4), "bar": self.bar, "met": self.met}


def report(world: str, plan: Plan, results: Results, cpu_seconds: float) -> dict[str, Any]:
    """Everything as JSON."""
    table = {name: {row: cells(results, name, row) for row in ROWS} for name in plan.arms}
    arms: dict[str, dict[str, Any]] = {}
    for name, rows in table.items():
        arms[name] = {row: _interval(figure) for row, figure in rows.items()}
        arms[name] |= _forgetting(results.forgetting[name])
        arms[name]["curve"] = _curve(results.curves.get(name, []))
        for ours in {OURS, TEXT} & table.keys() - {name}:
            arms[name][f"{ours}_minus_this"] = {
                row: _interval(difference(table, ours, name, row)) for row in ("success", "recovery", "steps")
            }
    return {
        "world": world,
        "seeds": len(plan.seeds),
        "orders": plan.orders,
        "history": plan.history,
        "measured": plan.measured,
        "forgetting_seeds": min(len(plan.seeds), plan.forgetting_seeds),
        "updates": plan.new_updates,
        "cpu_seconds": round(cpu_seconds, 1),
        "past": _past(results.pasts),
        "arms": arms,
        "references": {
            name: {row: _interval({seed: [run[row] for run in runs] for seed, runs in by_seed.items()}) for row in ROWS}
            for name, by_seed in results.references.items()
        },
        "bars": {name: bar.to_dict() for name, bar in bars(table, results).items()},
    }


def _past(pasts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: round(_mean([past[name] for past in pasts]), 4) for name in pasts[0]} if pasts else {}


def cells(results: Results, arm: str, row: str) -> Cells:
    """One figure of one arm by seed and order."""
    return {seed: [run[row] for run in runs] for seed, runs in results.runs[arm].items()}


def difference(table: Mapping[str, Mapping[str, Cells]], arm: str, rival: str, row: str) -> Cells:
    """An arm minus another, run by run."""
    ours, theirs = table[arm][row], table[rival][row]
    return {seed: [a - b for a, b in zip(ours[seed], theirs[seed], strict=True)] for seed in ours}


def bars(table: Mapping[str, Mapping[str, Cells]], results: Results) -> dict[str, Bar]:
    """See `python -m benchmarks.evaluate`: what ours has to reach."""
    if OURS not in table:
        return {}
    found = {}
    others = [name for name in table if name != OURS]
    for row in ("success", "recovery"):
        lows = [paired_difference(table[OURS][row], table[other][row]).low for other in others]
        found[f"{row}_beats_every_arm"] = Bar(
            min(lows) if lows else None,
            "lower bound of the difference to the best other arm > 0",
            min(lows) > 0 if lows else None,
        )
    recovery = interval(table[OURS]["recovery"]).mean
    if BASELINE in table:
        base = interval(table[BASELINE]["recovery"]).mean
        met = recovery >= RECOVERY_BAR or recovery >= RECOVERY_FACTOR * base
        found["recovery"] = Bar(recovery, f">= {RECOVERY_BAR}, or {RECOVERY_FACTOR:.0f} x {BASELINE} ({base:.3f})", met)
        saved = 1 - interval(table[OURS]["steps"]).mean / interval(table[BASELINE]["steps"]).mean
        found["steps_saved"] = Bar(saved, f">= {STEPS_BAR} of the steps of {BASELINE}", saved >= STEPS_BAR)
    overhead = interval(table[OURS]["overhead_percent"]).mean
    found["overhead_percent"] = Bar(
        overhead, f"<= {OVERHEAD_BAR_PERCENT} of a step of 1 s", overhead <= OVERHEAD_BAR_PERCENT
    )
    lost = results.forgetting[OURS]
    if lost:
        forgotten, gained = _mean([each.forgetting_pp for each in lost]), _mean([each.gain_pp for each in lost])
        found["forgetting_pp"] = Bar(forgotten, f"<= {FORGETTING_BAR_PP}", forgotten <= FORGETTING_BAR_PP)
        found["gain_pp"] = Bar(gained, f">= {GAIN_BAR_PP}", gained >= GAIN_BAR_PP)
    return found


def lines(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The table for people: one arm a line, means with their intervals; the references, which learn nothing, last."""
    rows: list[tuple[str, ...]] = []
    for name, arm in found["arms"].items():
        rows.append(
            (
                name,
                _range(arm["steps"], 1, "x"),
                *(_share(arm[f"success_{budget:g}x"]) for budget in BUDGETS),
                _range(arm["success"], 100, "%"),
                _range(arm["recovery"], 100, "%"),
                _plain(arm["forgetting_pp"]),
                _plain(arm["gain_pp"]),
                _plain(arm["guard_calls"] and arm["guard_calls"]["mean"]),
                _plain(arm["overhead_percent"] and arm["overhead_percent"]["mean"]),
            )
        )
    for name, reference in found["references"].items():
        shares = (_share(reference[f"success_{budget:g}x"]) for budget in BUDGETS)
        figures = (_range(reference["success"], 100, "%"), _range(reference["recovery"], 100, "%"))
        rows.append((f"{name} (reference)", _range(reference["steps"], 1, "x"), *shares, *figures, "-", "-", "-", "-"))
    return rows


def _range(figure: Mapping[str, float] | None, factor: float, unit: str) -> str:
    if figure is None:
        return "-"
    digits = 0 if factor == 100 else 2
    mean, low, high, gap = (factor * figure[name] for name in ("mean", "low", "high", "gap"))
    return f"{mean:.{digits}f} {unit} ({low:.{digits}f}-{high:.{digits}f}; gap {gap:.{digits}f})"


def _share(figure: Mapping[str, float] | None) -> str:
    return "-" if figure is None else f"{figure['mean']:.0%}"


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _interval(figure: Cells) -> dict[str, Any] | None:
    try:
        return interval(figure).to_dict()
    except ValueError:  # no run has this figure
        return None


def _forgetting(found: Sequence[Forgetting]) -> dict[str, float | None]:
    if not found:
        return {
            "forgetting_pp": None,
            "gain_pp": None,
            "worst_forgetting_pp": None,
            "old_auroc": None,
            "new_auroc": None,
        }
    return {
        "forgetting_pp": round(_mean([each.forgetting_pp for each in found]), 2),
        "worst_forgetting_pp": round(max(each.forgetting_pp for each in found), 2),
        "gain_pp": round(_mean([each.gain_pp for each in found]), 2),
        "old_auroc": round(_mean([each.old_after for each in found]), 3),
        "new_auroc": round(_mean([each.new_after for each in found]), 3),
    }


def _curve(runs: Sequence[Sequence[tuple[bool, int]]]) -> dict[str, list[float]]:
    """Success and errors of the first, second, ... session that was measured: means over the runs."""
    places = list(zip(*runs, strict=True))
    return {
        "success": [round(_mean([succeeded for succeeded, _ in place]), 4) for place in places],
        "errors": [round(_mean([errors for _, errors in place]), 4) for place in places],
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
