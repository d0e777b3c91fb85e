"""A real Prometheus scrapes the endpoint, and its own API gives the figures back."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sinks.metrics import CATALOGUE, Metrics

ROOT = Path(__file__).parents[2]

Query = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def worked() -> Iterator[tuple[Metrics, str]]:
    """The metrics of a worker that has done something, served."""
    metrics = Metrics("worker")
    metrics.received_events("fleetlore.default.events").inc(640)
    metrics.dead_letters("not_json").inc(2)
    metrics.consumer_lag("fleetlore.default.events", 3).set(17)
    for seconds in (0.004, 0.02, 3.0):
        metrics.end_to_end_latency("sessions").observe(seconds)
    metrics.show_adapter("failure", "0123abcd")
    with metrics.serve(0) as endpoint:
        yield metrics, f"{endpoint.host}:{endpoint.port}"


@pytest.fixture(scope="module")
def query(worked: tuple[Metrics, str], prometheus: Callable[..., Query]) -> Query:
    """Ask a Prometheus that has scraped the worker."""
    return prometheus(worker=worked[1])


def value(rows: list[dict[str, Any]]) -> float:
    (row,) = rows
    return float(row["value"][1])


def test_the_target_is_up(query: Query) -> None:
    assert value(query('up{job="fleetlore-worker"}')) == 1


def test_figures_come_back(query: Query) -> None:
    assert value(query('fleetlore_received_events_total{topic="fleetlore.default.events"}')) == 640
    assert value(query('fleetlore_dead_letters_total{reason="not_json"}')) == 2
    assert value(query('fleetlore_consumer_lag_records{partition="3"}')) == 17
    assert value(query('fleetlore_adapter_info{adapter="failure"}')) == 1
    assert value(query("fleetlore_end_to_end_latency_seconds_count")) == 3
    median = value(query("histogram_quantile(0.5, fleetlore_end_to_end_latency_seconds_bucket)"))
    assert 0.01 <= median <= 0.025


def test_prometheus_knows_the_metrics_by_the_names_of_the_catalogue(query: Query, worked: tuple[Metrics, str]) -> None:
    known = {spec.name for spec in CATALOGUE}
    parts = {
        f"{spec.name}_{part}" for spec in CATALOGUE if spec.kind == "histogram" for part in ("bucket", "sum", "count")
    }
    stored = {row["metric"]["__name__"] for row in query('{__name__=~"fleetlore_.*"}')}
    assert stored <= known | parts
    assert {spec.name for spec in CATALOGUE if not spec.labels and spec.kind != "histogram"} <= stored


def test_every_query_of_the_dashboard_and_the_alerts_is_understood(query: Query) -> None:
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "dashboards" / "fleetlore.json").read_text())
    rules = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"][0]["rules"]
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    for expression in [*expressions, *(rule["expr"] for rule in rules)]:
        query(expression.replace("$__rate_interval", "1m"))
