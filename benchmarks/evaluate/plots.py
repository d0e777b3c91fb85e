"""Draw the reports of `benchmarks.evaluate`, as SVG or PNG.

The same report gives the same bytes: no date, path or random id is in a file.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fleetlore.errors import ConfigError, ModelUnavailable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Sessions that a point of the success curve is the mean of: one session is won or lost.
TRAILING = 4
RED, GREEN = "#b2182b", "#1b7837"
ADMEM = (
    ("success", "success of long tasks, %", 100.0),
    ("recovery", "recovery, %", 100.0),
    ("steps", "steps, × the shortest way", 1.0),
    ("forgetting_pp", "forgetting, pp of AUROC", 1.0),
    ("overhead_percent", "overhead, % of a 1 s step", 1.0),
)
Report = Mapping[str, Any]
Draw = Callable[[Any, Report], None]


def plots(report: Report, form: str) -> Iterator[tuple[str, bytes]]:
    """Names (without the ending) and bytes of all figures of one report; `form` is `svg` or `png`.

    Raises:
        ConfigError: it is no report of these commands, or has nothing that can be drawn.
        ModelUnavailable: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ModelUnavailable("plots need: pip install matplotlib") from error
    for name, draw, size in _drawings(report):
        with matplotlib.rc_context({"svg.hashsalt": "fleetlore", "svg.fonttype": "none", "font.size": 9}):
            figure = Figure(figsize=size, layout="constrained")
            draw(figure, report)
            file = io.BytesIO()
            figure.savefig(file, format=form, dpi=110, metadata={"Date": None} if form == "svg" else {"Software": None})
        yield name, file.getvalue()


def _drawings(report: Report) -> list[tuple[str, Draw, tuple[float, float]]]:
    if {"world", "arms"} <= report.keys():
        world, arms = report["world"], report["arms"].values()
        if world not in ("tools", "bfcl"):
            raise ConfigError("the report names no world of `benchmarks.evaluate`")
        found: list[tuple[str, Draw, tuple[float, float]]] = [(f"evaluate-{world}-table", _table, (11, 3.2))]
        if any(arm["curve"]["success"] for arm in arms):
            found.append((f"evaluate-{world}-curves", _curves, (9, 3.4)))
        if any(arm["forgetting_pp"] is not None for arm in arms):
            found.append((f"evaluate-{world}-forgetting", _forgetting, (8, 3.2)))
        return found
    raise ConfigError("no report of `python -m benchmarks.evaluate --json`")


def _table(figure: Figure, report: Report) -> None:
    """AdMem's five rows, an arm a bar, with 95 % intervals where runs give them."""
    arms = report["arms"]
    axes = figure.subplots(1, len(ADMEM), sharey=True)
    for at, (row, title, factor) in zip(axes, ADMEM, strict=True):
        for place, arm in enumerate(arms.values()):
            value = arm[row]
            if value is None:
                continue
            mean, low, high = (
                (value["mean"], value["low"], value["high"]) if isinstance(value, Mapping) else (value,) * 3
            )
            error = [[factor * (mean - low)], [factor * (high - mean)]]
            at.barh(place, factor * mean, xerr=error, color=f"C{place}", ecolor="black", capsize=2)
        at.set_title(title, fontsize=8)
        at.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(arms)), list(arms))
    axes[0].invert_yaxis()


def _curves(figure: Figure, report: Report) -> None:
    """Success and errors by number of measured sessions."""
    success, errors = figure.subplots(1, 2)
    for place, (name, arm) in enumerate(report["arms"].items()):
        curve = arm["curve"]
        sessions = range(1, len(curve["success"]) + 1)
        success.plot(sessions, [100 * each for each in trailing(curve["success"])], color=f"C{place}", label=name)
        errors.plot(sessions, trailing(curve["errors"]), color=f"C{place}")
    success.set(xlabel="measured session", ylabel=f"success, % (mean of the last {TRAILING})", ylim=(0, 100))
    errors.set(xlabel="measured session", ylabel=f"errors a session (mean of the last {TRAILING})")
    figure.legend(loc="outside right center", fontsize=8)


def _forgetting(figure: Figure, report: Report) -> None:
    """AUROC of foreseeing failing calls, before and after 100 updates on new domains."""
    old, new = figure.subplots(1, 2, sharey=True)
    arms = {name: arm for name, arm in report["arms"].items() if arm["forgetting_pp"] is not None}
    for at, title, after, change, sign in (
        (old, "old domains", "old_auroc", "forgetting_pp", 1),
        (new, f"new domains, {report['updates']} updates", "new_auroc", "gain_pp", -1),
    ):
        for place, arm in enumerate(arms.values()):
            before = arm[after] + sign * arm[change] / 100
            better = arm[after] >= before
            at.plot([before, arm[after]], [place, place], color=GREEN if better else RED, zorder=1)
            at.scatter([before], [place], color="white", edgecolor="black", zorder=2, label="" if place else "before")
            at.scatter([arm[after]], [place], color="black", zorder=3, label="" if place else "after")
        at.set(title=title, xlabel="AUROC of P(this call fails)", xlim=(0.45, 1.0))
        at.grid(axis="x", alpha=0.3)
    old.set_yticks(range(len(arms)), list(arms))
    old.invert_yaxis()
    new.legend(fontsize=8)


def trailing(values: Sequence[float]) -> list[float]:
    """Mean of each value and up to `TRAILING` − 1 before it."""
    parts = [values[max(0, end - TRAILING) : end] for end in range(1, len(values) + 1)]
    return [sum(part) / len(part) for part in parts]
