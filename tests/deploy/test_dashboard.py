import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from sinks.metrics import CATALOGUE

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


def test_panels_do_not_overlap(panels: list[dict[str, Any]]) -> None:
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_grafana_finds_its_source_and_its_dashboards(panels: list[dict[str, Any]]) -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert {panel["datasource"]["uid"] for panel in panels} == {source["uid"]}
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "fleetlore.yml").read_text())["providers"]
    grafana = yaml.safe_load((DEPLOY.parent / "docker-compose.yml").read_text())["services"]["grafana"]
    assert f"./deploy/grafana/dashboards:{provider['options']['path']}:ro" in grafana["volumes"]
