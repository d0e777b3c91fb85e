import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sinks.metrics import CATALOGUE
from tests.rows import for_each

DEPLOY = Path(__file__).parents[2] / "deploy"
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
