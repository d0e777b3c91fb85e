"""Draw charts as SVG with units at the axes and each value with its time on hover."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from models.uplift import Uplift

__all__ = ["effect_chart", "line_chart"]

WIDTH, HEIGHT = 320, 48
# One for every second pixel.
_POINTS = 160
_BAR = 14
_TICKS = (0, 25, 50, 75, 100)


def line_chart(values: Sequence[float], label: str, unit: str, seconds: float) -> Markup:
    """Return a line over a base of 0, or "" for fewer than two values, one every `seconds`, the newest last."""
    if len(values) < 2:
        return Markup("")
    step = -(-len(values) // _POINTS)
    # Each point is the mean of its values, grouped from the newest.
    groups = [values[max(0, end - step) : end] for end in range(len(values), 0, -step)][::-1]
    means = [sum(group) / len(group) for group in groups]
    top = max(means) or 1.0
    across = WIDTH / (len(means) - 1)
    points = " ".join(
        f"{place * across:.1f},{HEIGHT - mean / top * (HEIGHT - 4) - 2:.1f}" for place, mean in enumerate(means)
    )
    ago = [_ago((len(means) - 1 - place) * step * seconds) for place in range(len(means))]
    hovered = Markup("").join(
        Markup('<rect x="{:.1f}" y="0" width="{:.1f}" height="{}"><title>{:,.1f} {}, {}</title></rect>').format(
            (place - 0.5) * across, across, HEIGHT, mean, unit, ago[place]
        )
        for place, mean in enumerate(means)
    )
    return Markup(
        '<figure class="chart"><figcaption>{label}</figcaption>'
        '<div class="y"><span>{top:,.1f} {unit}</span><span>0</span></div>'
        '<svg role="img" aria-label="{label}: {now:,.1f} {unit} now, at most {top:,.1f}" viewBox="0 0 {w} {h}" '
        'preserveAspectRatio="none"><polyline points="{points}" fill="none" vector-effect="non-scaling-stroke"/>'
        '{hovered}</svg><div class="x"><span>{first}</span><span>now</span></div></figure>'
    ).format(
        label=label, top=top, unit=unit, now=means[-1], w=WIDTH, h=HEIGHT, points=points, hovered=hovered, first=ago[0]
    )


def _ago(seconds: float) -> str:
    return "now" if not seconds else f"{seconds:.0f} s ago" if seconds < 120 else f"{seconds / 60:.0f} min ago"


def effect_chart(effect: Uplift) -> Markup:
    rates = effect.failures.shown, effect.failures.withheld
    if None in rates:
        return Markup("")
    rows = Markup("").join(
        Markup(
            '<text x="0" y="{text}">{name}</text>'
            '<rect class="{kind}" x="90" y="{y}" width="{width:.1f}" height="{high}">'
            "<title>{name}: {rate:.1%} of {trials:,} calls failed</title></rect>"
        ).format(
            text=(place * 2 + 1) * _BAR - 3, name=name, kind=kind, y=place * 2 * _BAR, width=2 * 100 * (rate or 0.0),
            high=_BAR, rate=rate or 0.0, trials=trials,
        )
        for place, (name, kind, rate, trials) in enumerate(
            (("with a hint", "shown", rates[0], effect.shown), ("withheld", "withheld", rates[1], effect.withheld))
        )
    )  # fmt: skip
    ticks = Markup("").join(
        Markup('<text class="tick" x="{}" y="{}">{} %</text>').format(90 + 2 * tick, 4 * _BAR + 6, tick)
        for tick in _TICKS
    )
    return Markup(
        '<svg class="bars" role="img" aria-label="Calls that failed: {:.0%} with a hint, {:.0%} of those from which it '
        'was withheld" viewBox="0 0 320 {}"><line x1="90" x2="290" y1="{}" y2="{}"/>{}{}</svg>'
    ).format(*rates, 4 * _BAR + 10, 3 * _BAR + 4, 3 * _BAR + 4, rows, ticks)
