"""Write what the Helm chart takes from the code: `python deploy/kubernetes.py`.

The settings and secrets of `deploy/helm/fleetlore/values.schema.json` are those of `fleetlore/config.py`, and in its
`files` are the alerts, the topics and what each role may do to them. Where `helm` is installed,
`deploy/kubernetes.yaml` is the chart rendered with its own values, and `deploy/kubernetes-operators.yaml` what it has
for the operators of Kafka (Strimzi) and Prometheus: for a cluster without Helm and for the tests.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import Field, fields
from math import inf
from pathlib import Path
from typing import Any

from fleetlore.config import Settings
from fleetlore.wire.topics import TOPICS, topic
from streams.commands.topics import accesses

FOLDER = Path(__file__).parent
CHART = FOLDER / "helm" / "fleetlore"
SCHEMA = CHART / "values.schema.json"
MANIFESTS = FOLDER / "kubernetes.yaml"
OPERATORS = FOLDER / "kubernetes-operators.yaml"
ALERTS = FOLDER / "alerts.yml"
FILES_OF_CHART = {"alerts.yml": ALERTS.read_text, "kafka.json": lambda: kafka()}
# Values of the chart that need an operator, each with its template.
FOR_OPERATORS = ("serviceMonitor", "prometheusRule", "strimzi")
# The oldest version whose objects the chart may use is in Chart.yaml; this one is what it is rendered for.
KUBERNETES = "1.34.0"

# What the chart sets by itself, and what none of its roles reads.
OWN = {"metrics_host", "metrics_port", "adapters_dir", "signing_key", "console_token", "state_dir"}
# Files that come from a Secret, though their paths are none.
FILES = "_location"


def settings_and_secrets() -> tuple[dict[str, Any], dict[str, Any]]:
    """The schemas of `settings` and `secrets`, by variable."""
    settings, secrets = {}, {}
    for each in fields(Settings):
        if each.name in OWN:
            continue
        variable, doc = f"FLEETLORE_{each.name.upper()}", each.metadata["doc"]
        if each.metadata["secret"] or each.name.endswith(FILES):
            secrets[variable] = {"allOf": [{"$ref": "#/definitions/secret"}], "description": doc}
        else:
            settings[variable] = _schema(each) | {"description": doc}
    return settings, secrets


def _schema(each: Field[Any]) -> dict[str, Any]:
    if isinstance(each.default, str | tuple):
        return {"type": "string"} | ({"minLength": 1} if each.default else {})
    # `--set` makes a string of 0.1; its bounds are then the role's to check.
    number = {"type": ["number", "string"], "pattern": r"^[0-9]+(\.[0-9]+)?(e-?[0-9]+)?$"}
    schema: dict[str, Any] = {"type": "integer"} if isinstance(each.default, int) else number
    within = each.metadata["within"]
    low, high = (float(bound) for bound in within[1:-1].split(","))
    schema["minimum" if within[0] == "[" else "exclusiveMinimum"] = low
    if high != inf:
        schema["maximum" if within[-1] == "]" else "exclusiveMaximum"] = high
    return schema


def schema() -> str:
    """The text of `values.schema.json`: as it is, with the settings and secrets of the code."""
    document = json.loads(SCHEMA.read_text())
    properties = document["properties"]
    properties["settings"]["properties"], properties["secrets"]["properties"] = settings_and_secrets()
    return json.dumps(document, indent=2) + "\n"


def kafka() -> str:
    """The text of `files/kafka.json`: topics of a tenant, and what each role may do to topics and consumer groups."""
    tenant, own = "tenant", Settings()
    topics = [
        {
            "name": spec.name,
            "partitions": spec.partitions,
            # Its number depends on the replicas, so the template states it.
            "config": {k: v for k, v in spec.configs(1).items() if k != "min.insync.replicas"},
        }
        for spec in TOPICS
    ]
    roles: dict[str, dict[str, Any]] = {}
    for access in accesses([tenant], own.group):
        role = access.user.removesuffix(f"-{tenant}")
        found = roles.setdefault(role, {"ofTenant": role != access.user, "topics": [], "groups": []})
        if access.kind == "topic":
            names = [name.removeprefix(topic(tenant, "events").removesuffix("events")) for name in access.names]
            found["topics"].append({"operations": access.operations, "names": names})
        else:
            more = [name.removeprefix(own.group) for name in access.names]
            pattern = "prefix" if access.prefixed else "literal"
            found["groups"].append({"operations": access.operations, "more": more, "patternType": pattern})
    defaults = {"tenants": own.tenants, "partitions": own.partitions, "replication": own.replication}
    document = {"defaults": {**defaults, "group": own.group}, "topics": topics, "roles": roles}
    return json.dumps(document, indent=1) + "\n"


def find_helm() -> str | None:
    """Helm on the path, or where `go install` puts it."""
    return shutil.which("helm") or shutil.which("helm", path=str(Path.home() / "go" / "bin"))


def render(helm: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `helm template` on the chart."""
    command = [helm, "template", "fleetlore", str(CHART), "--kube-version", KUBERNETES, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def operators() -> list[str]:
    """Arguments that render what operators read, and nothing else."""
    return [
        *(f"--set={name}.enabled=true" for name in FOR_OPERATORS),
        *(f"--show-only=templates/{name.lower()}.yaml" for name in FOR_OPERATORS),
    ]


def main() -> None:
    SCHEMA.write_text(schema())
    for name, text in FILES_OF_CHART.items():
        (CHART / "files" / name).write_text(text())
    helm = find_helm()
    if helm is None:
        print("deploy/kubernetes*.yaml are left as they are: helm is not installed")
        return
    for file, arguments in ((MANIFESTS, []), (OPERATORS, operators())):
        done = render(helm, *arguments)
        if done.returncode:
            raise SystemExit(done.stderr)
        file.write_text(done.stdout)


if __name__ == "__main__":
    main()
