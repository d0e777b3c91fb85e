"""Write the Grafana dashboard from the catalogue of metrics: `python deploy/dashboard.py`.

A row for each `row` of the catalogue, a panel for each metric; what a panel shows follows from the kind of the metric.
The result is checked in, so that Grafana loads it without this script; a test fails when it is out of date.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from sinks.metrics import CATALOGUE, PREFIX, MetricSpec

TARGET = Path(__file__).parent / "grafana" / "dashboards" / "fleetlore.json"
DATASOURCE = {"type": "prometheus", "uid": "prometheus"}
PANELS_A_ROW = 3
WIDTH, HEIGHT = 24 // PANELS_A_ROW, 8
UNITS = {"seconds": "s", "bytes": "bytes"}


def queries(spec: MetricSpec[Any]) -> Iterator[tuple[str, str]]:
    """PromQL and legend of one metric. A role that a label tells apart is never summed away by its instance."""
    legend = " ".join(f"{{{{{label}}}}}" for label in spec.labels)
    if spec.kind == "counter":
        by = f" by ({', '.join(spec.labels)})" if spec.labels else ""
        yield f"sum{by} (rate({spec.name}[$__rate_interval]))", legend or "all"
    elif spec.kind == "histogram":
        by = ", ".join(("le", *spec.labels))
        for quantile in (0.5, 0.99):
            rate = f"sum by ({by}) (rate({spec.name}_bucket[$__rate_interval]))"
            yield f"histogram_quantile({quantile}, {rate})", f"p{quantile * 100:.0f} {legend}".strip()
    elif spec.name.endswith("_timestamp_seconds"):
        yield f"time() - {spec.name}", "age, {{instance}}"
    else:
        yield spec.name, f"{legend} {{{{instance}}}}".strip()


def unit(spec: MetricSpec[Any]) -> str:
    """Grafana's unit for the values of a panel."""
    if spec.kind == "counter":
        return "ops"
    return UNITS.get(spec.name.rpartition("_")[2], "short")


def panel(spec: MetricSpec[Any], number: int, x: int, y: int) -> dict[str, Any]:
    """One panel: a graph over time, or a table for what is only there to be read."""
    info = spec.name.endswith("_info")
    targets = [
        {
            "refId": chr(ord("A") + index),
            "expr": expression,
            "legendFormat": legend,
            **({"instant": True, "format": "table"} if info else {}),
        }
        for index, (expression, legend) in enumerate(queries(spec))
    ]
    return {
        "id": number,
        "type": "table" if info else "timeseries",
        "title": spec.stem.removesuffix("_total").removesuffix("_seconds").replace("_", " "),
        "description": spec.help,
        "datasource": DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit(spec), "min": 0}, "overrides": []},
        "targets": targets,
    }


def dashboard() -> dict[str, Any]:
    """The whole dashboard as Grafana's JSON model."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row, specs in groupby(CATALOGUE, key=lambda spec: spec.row):
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": row.capitalize(),
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": 24, "h": 1},
                "panels": [],
            }
        )
        y += 1
        members = list(specs)
        for index, spec in enumerate(members):
            line, column = divmod(index, PANELS_A_ROW)
            panels.append(panel(spec, len(panels) + 1, column * WIDTH, y + line * HEIGHT))
        y += -(-len(members) // PANELS_A_ROW) * HEIGHT
    return {
        "uid": PREFIX.rstrip("_"),
        "title": "fleetlore",
        "tags": ["fleetlore"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": []},
        "panels": panels,
    }


def render() -> str:
    """The text of the file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(render())
