"""Write the Grafana dashboard from the catalogue of metrics: `python deploy/dashboard.py`.

A row for each `row` of the catalogue, a panel for each metric; what a panel shows follows from the kind of the metric.
Variables choose tenant, tool and process. Agents are no label of a metric, so there is no variable for them.
The result is checked in, so that Grafana loads it without this script; a test fails when it is out of date.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sinks.metrics import CATALOGUE, PREFIX, MetricSpec

TARGET = Path(__file__).parent / "grafana" / "dashboards" / "fleetlore.json"
DATASOURCE = {"type": "prometheus", "uid": "prometheus"}
PANELS_A_ROW = 3
WIDTH, HEIGHT = 24 // PANELS_A_ROW, 8
UNITS = {"seconds": "s", "bytes": "bytes"}
# A metric whose series name the values that each variable offers.
VARIABLES = {"tenant": "tool_calls", "tool": "tool_calls", "instance": "build_info"}


def series(spec: MetricSpec[Any], suffix: str = "") -> str:
    """The metric's series that the variables choose."""
    chosen = ['instance=~"$instance"', *(f'{label}=~"${label}"' for label in spec.labels if label in VARIABLES)]
    if "topic" in spec.labels:
        chosen.append('topic=~"fleetlore[.]($tenant)[.].+"')
    return f"{spec.name}{suffix}{{{', '.join(chosen)}}}"


def queries(spec: MetricSpec[Any]) -> Iterator[tuple[str, str]]:
    """PromQL and legend of one metric. A role that a label tells apart is never summed away by its instance."""
    legend = " ".join(f"{{{{{label}}}}}" for label in spec.labels)
    if spec.kind == "counter":
        by = f" by ({', '.join(spec.labels)})" if spec.labels else ""
        yield f"sum{by} (rate({series(spec)}[$__rate_interval]))", legend or "all"
    elif spec.kind == "histogram":
        by = ", ".join(("le", *spec.labels))
        for quantile in (0.5, 0.99):
            rate = f"sum by ({by}) (rate({series(spec, '_bucket')}[$__rate_interval]))"
            yield f"histogram_quantile({quantile}, {rate})", f"p{quantile * 100:.0f} {legend}".strip()
    elif spec.name.endswith("_timestamp_seconds"):
        yield f"time() - {series(spec)}", "age, {{instance}}"
    else:
        yield series(spec), f"{legend} {{{{instance}}}}".strip()


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


def variable(label: str, source: str) -> dict[str, Any]:
    """A choice of one, several or all values of a label."""
    return {
        "name": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": f"label_values({PREFIX}{source}, {label})", "refId": label},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard() -> dict[str, Any]:
    """The whole dashboard as Grafana's JSON model."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row in dict.fromkeys(spec.row for spec in CATALOGUE):
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
        members = [spec for spec in CATALOGUE if spec.row == row]
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
        "templating": {"list": [variable(*each) for each in VARIABLES.items()]},
        "panels": panels,
    }


def render() -> str:
    """The text of the file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(render())
