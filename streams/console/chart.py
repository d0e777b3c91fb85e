"""Draw a line of values as SVG, so that the page shows it without a script."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

WIDTH, HEIGHT = 320, 48
# More points than pixels cost bytes and show nothing.
_POINTS = 160


def line_chart(values: Sequence[float], label: str) -> Markup:
    """A line over a common base of 0; nothing where there are fewer than two values. `label` is read aloud."""
    if len(values) < 2:
        return Markup("")
    step = -(-len(values) // _POINTS)
    # Each point is the mean of its values, counted from the newest.
    groups = [values[max(0, end - step) : end] for end in range(len(values), 0, -step)][::-1]
    means = [sum(group) / len(group) for group in groups]
    top = max(means) or 1.0
    across = WIDTH / max(1, len(means) - 1)
    points = " ".join(
        f"{place * across:.1f},{HEIGHT - mean / top * (HEIGHT - 4) - 2:.1f}" for place, mean in enumerate(means)
    )
    return Markup(
        '<svg class="chart" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">'
        '<polyline points="{}" fill="none" vector-effect="non-scaling-stroke"/></svg>'
    ).format(escape(label), WIDTH, HEIGHT, points)
