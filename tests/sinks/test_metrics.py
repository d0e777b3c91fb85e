import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sinks.metrics import CATALOGUE, LABELS, Metrics

ROOT = Path(__file__).parents[2]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("worker")


def test_every_label_is_documented_and_used() -> None:
    assert {label for spec in CATALOGUE for label in spec.labels} == set(LABELS)
    # An agent, a session or an adapter's hash as a label makes series without bound; of tools some have one.
    assert not {"agent", "session", "pattern", "error", "hash", "offset"} & set(LABELS)


def test_no_metric_is_made_outside_the_catalogue() -> None:
    """No other module may make a metric of prometheus_client: the dashboard and the alerts would not know it."""
    makes_one = re.compile(
        r"^\s*(from|import) prometheus_client\b(?!\.exposition).*\b(Counter|Gauge|Histogram|Summary)\b"
    )
    modules = [path for floor in ("fleetlore", "models", "sinks", "streams") for path in (ROOT / floor).rglob("*.py")]
    makers = {
        str(path.relative_to(ROOT))
        for path in modules
        if any(makes_one.match(line) for line in path.read_text().splitlines())
    }
    assert makers == {"sinks/metrics.py"}


def test_every_metric_is_set_by_something() -> None:
    """A line that nothing sets is a panel that stays empty and an alert that never fires."""
    code = "".join(
        path.read_text() for package in ("models", "sinks", "streams") for path in (ROOT / package).rglob("*.py")
    )
    names = [name for name, spec in vars(Metrics).items() if spec in CATALOGUE]
    assert not [name for name in names if not re.search(rf"\.{name}\.(labels|inc|set)", code)]


def test_a_removed_series_is_gone_and_can_come_back(metrics: Metrics) -> None:
    labels = {"topic": "fleetlore.default.events", "partition": "3"}
    metrics.consumer_lag.labels("fleetlore.default.events", 3).set(41)
    metrics.consumer_lag.remove("fleetlore.default.events", 3)
    metrics.consumer_lag.remove("fleetlore.default.events", 3)
    assert metrics.registry.get_sample_value("fleetlore_consumer_lag_records", labels) is None
    metrics.consumer_lag.labels("fleetlore.default.events", 3).set(2)
    assert metrics.registry.get_sample_value("fleetlore_consumer_lag_records", labels) == 2


def test_one_adapter_version_is_shown_at_a_time(metrics: Metrics) -> None:
    metrics.show_adapter("failure", "aa11")
    metrics.show_adapter("failure", "bb22")
    metrics.show_adapter("other", "aa11")
    value = metrics.registry.get_sample_value
    assert value("fleetlore_adapter_info", {"adapter": "failure", "version": "aa11"}) is None
    assert value("fleetlore_adapter_info", {"adapter": "failure", "version": "bb22"}) == 1
    assert value("fleetlore_adapter_info", {"adapter": "other", "version": "aa11"}) == 1


Query = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def worked() -> Iterator[tuple[Metrics, str]]:
    """The metrics of a worker that has done something, served."""
    metrics = Metrics("worker")
    metrics.received_events.labels("fleetlore.default.events").inc(640)
    metrics.dead_letters.labels("not_json").inc(2)
    metrics.consumer_lag.labels("fleetlore.default.events", 3).set(17)
    for seconds in (0.004, 0.02, 3.0):
        metrics.end_to_end_latency.labels("sessions").observe(seconds)
    metrics.show_adapter("failure", "0123abcd")
    with metrics.serve(0) as endpoint:
        yield metrics, f"{endpoint.host}:{endpoint.port}"


@pytest.fixture(scope="module")
def query(worked: tuple[Metrics, str], prometheus: Callable[..., Query]) -> Query:
    """Ask a Prometheus that has scraped the worker."""
    return prometheus(worker=worked[1])


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
