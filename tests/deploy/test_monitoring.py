"""The dashboard and the alerts name metrics and labels that exist, and each alert leads to its runbook."""

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from sinks.metrics import CATALOGUE
from tests.rows import for_each

DEPLOY = Path(__file__).parents[2] / "deploy"


def script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboards" / "fleetlore.json").read_text())
    return read


@pytest.fixture(scope="module")
def panels(model: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in model["panels"] if panel["type"] != "row"]


def test_the_dashboard_is_up_to_date() -> None:
    dashboard = script(DEPLOY / "dashboard.py")
    assert dashboard.TARGET.read_text() == dashboard.render(), "run `make docs`"


def test_every_metric_has_one_panel(panels: list[dict[str, Any]]) -> None:
    specs = {spec.help: spec for spec in CATALOGUE}
    assert len(panels) == len(specs) and {panel["description"] for panel in panels} == specs.keys()
    for panel in panels:
        spec = specs[panel["description"]]
        assert panel["targets"] and all(spec.name in target["expr"] for target in panel["targets"])


def test_variables_choose_the_series_that_have_their_label(model: dict[str, Any], panels: list[dict[str, Any]]) -> None:
    offered = {each["name"]: each["query"]["query"] for each in model["templating"]["list"]}
    assert offered.keys() == {"tenant", "tool", "instance"}
    named = {spec.name: spec.labels for spec in CATALOGUE}
    for label, query in offered.items():
        source = query.removeprefix("label_values(").partition(",")[0]
        assert label == "instance" or label in named[source]
    specs = {spec.help: spec for spec in CATALOGUE}
    for panel in panels:
        labels = {"instance", *specs[panel["description"]].labels}
        for target in panel["targets"]:
            chosen = {each for each in offered if f'{each}=~"${each}"' in target["expr"]}
            assert chosen == labels & offered.keys()
            assert ("($tenant)" in target["expr"]) == ("topic" in labels)


def test_grafana_finds_its_source_and_its_dashboards(panels: list[dict[str, Any]]) -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert {panel["datasource"]["uid"] for panel in panels} == {source["uid"]}
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "fleetlore.yml").read_text())["providers"]
    grafana = yaml.safe_load((DEPLOY.parent / "docker-compose.yml").read_text())["services"]["grafana"]
    assert f"./deploy/grafana/dashboards:{provider['options']['path']}:ro" in grafana["volumes"]


SCRAPED = {"instance", "job"}

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (of Prometheus) is not installed"
)


def series() -> dict[str, set[str]]:
    """Names of all series that can be scraped, with their labels."""
    known: dict[str, set[str]] = {"up": set()}
    for spec in CATALOGUE:
        if spec.kind == "histogram":
            known |= {f"{spec.name}_{part}": set(spec.labels) for part in ("sum", "count")}
            known[f"{spec.name}_bucket"] = {*spec.labels, "le"}
        else:
            known[spec.name] = set(spec.labels)
    return known


@pytest.fixture(scope="module")
def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    return list(group["rules"])


def test_alerts_name_only_metrics_and_labels_that_exist(rules: list[dict[str, Any]]) -> None:
    known = series()
    for rule in rules:
        named = set(re.findall(r"\bfleetlore_\w+|\bup\b", rule["expr"]))
        assert named and named <= set(known), rule["alert"]
        labels = {
            label
            for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"])
            for label in group.replace(" ", "").split(",")
        }
        labels |= set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", rule["expr"]))
        assert labels <= SCRAPED.union(*(known[name] for name in named)), rule["alert"]


def test_every_alert_says_what_to_do(rules: list[dict[str, Any]]) -> None:
    for rule in rules:
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}, rule["alert"]
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        headings = re.findall(r"^## (\w+)$", (DEPLOY.parent / page).read_text(), re.MULTILINE)
        assert anchor == rule["alert"].lower() and rule["alert"] in headings
        assert rule["labels"]["severity"] in {"page", "ticket"}, rule["alert"]


def test_every_alert_is_seen_firing(rules: list[dict[str, Any]]) -> None:
    cases = (DEPLOY / "alerts_test.yml").read_text()
    assert all(f'alertname="{rule["alert"]}"' in cases for rule in rules)


@needs_promtool
@for_each(
    "arguments",
    ("check", "config", "prometheus.yml"),
    ("check", "rules", "alerts.yml"),
    ("test", "rules", "alerts_test.yml"),
)
def test_promtool_is_content(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=DEPLOY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
