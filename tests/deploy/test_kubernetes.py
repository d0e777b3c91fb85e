"""The Helm chart and the manifests made of it: valid objects, real commands and settings, clear words for bad values.

That they run is not tested here: it needs a cluster. Without `helm` the tests read
`deploy/kubernetes.yaml`, which is the chart's output.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import typer.main
import yaml

from fleetlore.cli.app import build_app
from fleetlore.config import Settings, variables
from fleetlore.errors import ConfigError
from streams.runtime.lifecycle import LEAVE_SECONDS
from tests.deploy.test_monitoring import script
from tests.rows import for_each

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "fleetlore"
# Objects of operators, whose schemas a plain cluster lacks.
OPERATORS = {"ScaledObject", "ServiceMonitor", "PrometheusRule", "KafkaTopic", "KafkaUser"}
OLDEST, NEWEST = "1.25", "1.37"
EVERYTHING = (
    "--set=settings.FLEETLORE_LLM_TOKENS_PER_DAY=3000000,settings.FLEETLORE_HOLDOUT_SHARE=0.07",
    "--set=secrets.FLEETLORE_MILVUS_TOKEN.name=milvus,secrets.FLEETLORE_MILVUS_TOKEN.key=token",
    "--set=secrets.FLEETLORE_KAFKA_SSL_CA_LOCATION.name=kafka,secrets.FLEETLORE_KAFKA_SSL_CA_LOCATION.key=ca.crt",
    "--set=keda.enabled=true,serviceMonitor.enabled=true,prometheusRule.enabled=true,strimzi.enabled=true",
    "--set=relay.enabled=true,relay.tls=relay-tls,relay.autoscaling.enabled=true",
    "--set=console.actions=true,imagePullSecrets[0].name=registry",
    "--set=ingress.enabled=true,ingress.className=nginx,ingress.tlsSecret=page,podLabels.team=agents,priorityClassName=high",
    f"--set=extraEnv[0].name=HTTPS_PROXY,extraEnv[0].value=http://proxy:3128,image.digest=sha256:{'a' * 64}",
)


SCRIPT = script(DEPLOY / "kubernetes.py")
HELM: str | None = SCRIPT.find_helm()
KUBECONFORM = shutil.which("kubeconform") or shutil.which("kubeconform", path=str(Path.home() / "go" / "bin"))
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not installed")

Object = dict[str, Any]


def rendered(*arguments: str) -> str:
    done = SCRIPT.render(HELM, *arguments)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def objects(text: str) -> list[Object]:
    return [each for each in yaml.safe_load_all(text) if each]


@pytest.fixture(scope="module", params=["as it is", pytest.param("everything on", marks=needs_helm)])
def manifests(request: pytest.FixtureRequest) -> list[Object]:
    """The chart with its own values, and with every option switched on."""
    if request.param == "as it is":
        return objects((DEPLOY / "kubernetes.yaml").read_text())
    return objects(rendered(*EVERYTHING))


def roles(manifests: list[Object]) -> Iterator[tuple[Object, Object]]:
    """Workload and its container."""
    for each in manifests:
        if each["kind"] in {"StatefulSet", "Deployment"}:
            (container,) = each["spec"]["template"]["spec"]["containers"]
            yield each, container


def environment(manifests: list[Object], container: Object) -> dict[str, str]:
    (config,) = (each for each in manifests if each["kind"] == "ConfigMap")
    assert container["envFrom"] == [{"configMapRef": {"name": config["metadata"]["name"]}}]
    return {**config["data"], **{each["name"]: each["value"] for each in container.get("env", [])}}


# --- made from the code, and made from the chart ---


def test_the_schema_names_the_settings_of_the_code() -> None:
    assert (CHART / "values.schema.json").read_text() == SCRIPT.schema(), "run `make docs`"
    settings, secrets = SCRIPT.settings_and_secrets()
    own = {f"FLEETLORE_{each.upper()}" for each in SCRIPT.OWN}
    assert {*settings, *secrets, *own} == {*variables()}


@needs_helm
def test_the_manifests_are_what_the_chart_gives() -> None:
    assert (DEPLOY / "kubernetes.yaml").read_text() == rendered(), "run `make docs`"


@needs_helm
def test_helm_finds_no_fault() -> None:
    done = subprocess.run([HELM or "", "lint", "--strict", "--quiet", str(CHART)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_helm
def test_what_a_platform_asks_of_each_pod_is_on_each_pod() -> None:
    everything = objects(rendered(*EVERYTHING))
    pods = [each["spec"]["template"] for each, _ in roles(everything)]
    (doctor,) = [each for each in everything if each["kind"] == "Pod"]
    assert doctor["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (account,) = [each["metadata"]["name"] for each in everything if each["kind"] == "ServiceAccount"]
    for pod in [*pods, doctor]:
        spec = pod["spec"]
        assert (spec["serviceAccountName"], spec["priorityClassName"]) == (account, "high")
        (container,) = spec["containers"]
        assert {"name": "HTTPS_PROXY", "value": "http://proxy:3128"} in container["env"]
        assert container["image"].endswith(f"@sha256:{'a' * 64}")
    assert all(pod["metadata"]["labels"]["team"] == "agents" for pod in pods)
    images = {each["metadata"]["name"]: container["image"].partition("@")[0] for each, container in roles(everything)}
    assert {name.rpartition("-")[2]: image for name, image in images.items()} == {
        "worker": "fleetlore-worker", "trainer": "fleetlore-trainer", "console": "fleetlore-worker",
        "relay": "fleetlore-worker",
    }  # fmt: skip
    (worker,) = [pod["spec"] for pod in pods if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "worker"]
    (spread,) = worker["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "worker"
    (ingress,) = [each["spec"] for each in everything if each["kind"] == "Ingress"]
    assert ingress["tls"][0]["hosts"] == [ingress["rules"][0]["host"]]


def test_the_chart_is_of_this_version() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == version("fleetlore")


# --- valid for a cluster ---


@pytest.mark.parametrize("kubernetes", [OLDEST, NEWEST])
def test_every_object_is_valid_with_no_field_misspelt(manifests: list[Object], kubernetes: str) -> None:
    import kubernetes_validate  # takes seconds

    for each in manifests:
        if each["kind"] not in OPERATORS:
            kubernetes_validate.validate(each, kubernetes, strict=True)


@pytest.mark.long
@pytest.mark.skipif(KUBECONFORM is None, reason="kubeconform is not installed")
@needs_helm
def test_kubeconform_agrees(tmp_path: Path) -> None:
    """With the schemas of kubernetes-validate, made whole: kubeconform would ask the net for what they refer to."""
    import kubernetes_validate

    text = rendered(*EVERYTHING)
    (schemas,) = Path(kubernetes_validate.__file__).parent.glob(f"kubernetes-json-schema/v{NEWEST}.*-local-strict")
    definitions = json.loads((schemas / "_definitions.json").read_text())["$defs"]
    for name in {_schema_name(each) for each in objects(text) if each["kind"] not in OPERATORS}:
        schema = json.loads((schemas / name).read_text().replace("/api/_definitions.json#", "#"))
        (tmp_path / name).write_text(
            json.dumps({k: v for k, v in schema.items() if k != "$id"} | {"$defs": definitions})
        )
    command = [KUBECONFORM or "", "-strict", "-summary", "-output=json", f"-kubernetes-version={NEWEST}.0"]
    command += [
        "-skip=" + ",".join(OPERATORS),
        f"-schema-location={tmp_path}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json",
    ]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)["summary"]
    skipped = sum(each["kind"] in OPERATORS for each in objects(text))
    assert (summary["invalid"], summary["errors"], summary["skipped"]) == (0, 0, skipped)
    assert summary["valid"] == len(objects(text)) - skipped
    misspelt = text.replace("enableServiceLinks", "enableServiceLink")
    assert subprocess.run(command, input=misspelt, capture_output=True, text=True).returncode == 1


def _schema_name(each: Object) -> str:
    group, _, version = each["apiVersion"].rpartition("/")
    return "-".join(filter(None, [each["kind"].lower(), group.partition(".")[0], version])) + ".json"


# --- the commands and settings of the project ---


def test_the_roles_are_commands_with_options_that_exist(manifests: list[Object], tmp_path: Path) -> None:
    group: Any = typer.main.get_command(build_app())
    found = {}
    for workload, container in roles(manifests):
        (tmp_path / "file").touch()
        args = [re.sub("/run/secrets/relay/.*", str(tmp_path / "file"), each) for each in container["args"]]
        program, name, *arguments = args
        assert program == "fleetlore"
        context = group.commands[name].make_context(name, arguments)
        found[name] = workload["kind"]
        context.close()
    assert found.pop("relay", "Deployment") == "Deployment"
    assert found == {"worker": "StatefulSet", "trainer": "StatefulSet", "console": "Deployment"}


def test_every_variable_is_a_setting_and_every_secret_a_file(
    manifests: list[Object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount = "/run/secrets/fleetlore"
    for workload, container in roles(manifests):
        pod = workload["spec"]["template"]["spec"]
        (volume,) = (each for each in pod["volumes"] if each["name"] == "secrets")
        files = {item["path"] for each in volume["projected"]["sources"] for item in each["secret"]["items"]}
        environ = environment(manifests, container)
        assert {value for value in environ.values() if value.startswith(mount)} == {f"{mount}/{f}" for f in files}
        for file in files:
            (tmp_path / file).write_text("x")
        # A setting of a protocol without TLS refuses a file of TLS.
        tls = {"FLEETLORE_KAFKA_SECURITY_PROTOCOL": "SSL"} if any("_SSL_" in name for name in files) else {}
        settings = Settings.from_env({n: v.replace(mount, str(tmp_path)) for n, v in environ.items()} | tls)
        assert settings.metrics_host == "0.0.0.0"
        if settings.llm_tokens_per_day != Settings().llm_tokens_per_day:
            assert (settings.llm_tokens_per_day, settings.holdout_share) == (3_000_000, 0.07)


def test_no_variable_of_a_service_reaches_a_role(manifests: list[Object]) -> None:
    """Kubernetes names the Services of a namespace in variables, and a role refuses what is no setting."""
    with pytest.raises(ConfigError, match="not a setting"):
        Settings.from_env({"FLEETLORE_CONSOLE_SERVICE_HOST": "10.0.0.1"})
    for workload, _ in roles(manifests):
        assert workload["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_a_role_has_time_to_end_and_may_write_where_it_does(manifests: list[Object]) -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    for workload, container in roles(manifests):
        pod = workload["spec"]["template"]["spec"]
        drain = Settings.from_env(
            {"FLEETLORE_DRAIN_SECONDS": environment(manifests, container)["FLEETLORE_DRAIN_SECONDS"]}
        )
        assert pod["terminationGracePeriodSeconds"] > drain.drain_seconds + LEAVE_SECONDS
        assert f"--uid {pod['securityContext']['runAsUser']} --home-dir /var/lib/fleetlore" in dockerfile
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        writable = {each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")}
        assert writable == {"/tmp", "/var/lib/fleetlore"}


# --- what leads where ---


def labels(workload: Object) -> dict[str, str]:
    return dict(workload["spec"]["template"]["metadata"]["labels"])


def test_what_selects_pods_finds_them_and_names_their_ports(manifests: list[Object]) -> None:
    pods = [(labels(workload), container) for workload, container in roles(manifests)]
    for each in manifests:
        match each["kind"]:
            case "Service":
                selector, ports = each["spec"]["selector"], [port["targetPort"] for port in each["spec"]["ports"]]
            case "NetworkPolicy":
                selector = each["spec"]["podSelector"]["matchLabels"]
                ports = [port["port"] for rule in each["spec"]["ingress"] for port in rule["ports"]]
            case "PodDisruptionBudget":
                selector, ports = each["spec"]["selector"]["matchLabels"], []
            case "StatefulSet" | "Deployment":
                selector, ports = each["spec"]["selector"]["matchLabels"], []
                assert selector.items() <= labels(each).items()
            case _:
                continue
        found = [container for of, container in pods if selector.items() <= of.items()]
        assert found, each["metadata"]["name"]
        for container in found:
            if each["kind"] == "NetworkPolicy" and container["args"][1] in ("console", "relay"):
                continue  # the expression beside these labels leaves it out
            assert {*ports} <= {port["name"] for port in container["ports"]}


def test_the_console_asks_each_process_by_its_name(manifests: list[Object]) -> None:
    by_role = {container["args"][1]: (workload, container) for workload, container in roles(manifests)}
    asked = [each.removeprefix("--metrics=") for each in by_role["console"][1]["args"] if "--metrics=" in each]
    scaled = [each["spec"]["maxReplicaCount"] for each in manifests if each["kind"] == "ScaledObject"]
    names = []
    for role in ("worker", "trainer"):
        workload = by_role[role][0]
        name, service = workload["metadata"]["name"], workload["spec"]["serviceName"]
        count = workload["spec"].get("replicas") or scaled[0]
        names += [f"http://{name}-{number}.{service}:9464" for number in range(count)]
    assert asked == names


@needs_helm
@for_each("tls", "", "relay-tls")
def test_a_relay_has_tokens_probes_a_budget_and_replicas_by_load(tls: str) -> None:
    given = ("--set=relay.enabled=true,relay.autoscaling.enabled=true", f"--set=relay.tls={tls}")
    everything = objects(rendered(*given, "--set=settings.FLEETLORE_TENANTS=shop\\,billing"))
    mine = [each for each in everything if each["metadata"]["name"] == "fleetlore-relay"]
    of = {each["kind"]: each["spec"] for each in mine}
    assert {*of} == {
        "Service", "Deployment", "PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy"
    }  # fmt: skip
    assert "replicas" not in of["Deployment"], "a rollout would undo what the autoscaler chose"
    pod = of["Deployment"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {"--tokens=/run/secrets/relay/tokens", "--tenant=shop", "--tenant=billing"} <= {*container["args"]}
    assert ("--plain" in container["args"]) == (not tls)
    for probe, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        scheme = "HTTPS" if tls else "HTTP"
        assert container[probe]["httpGet"] == {"path": path, "port": "relay", "scheme": scheme}
    (volume,) = [each for each in pod["volumes"] if each["name"] == "relay"]
    files = {item["path"] for each in volume["projected"]["sources"] for item in each["secret"]["items"]}
    assert files == ({"tokens", "tls.crt", "tls.key"} if tls else {"tokens"})
    assert container["resources"]["limits"]["memory"]
    assert of["HorizontalPodAutoscaler"]["scaleTargetRef"]["name"] == "fleetlore-relay"


@needs_helm
@for_each("base", "", "https://docs.example/")
def test_alerts_lead_to_an_address_that_a_pager_opens(base: str) -> None:
    given = ("--set=prometheusRule.enabled=true", f"--set=prometheusRule.runbookBase={base}")
    (rules,) = [each["spec"] for each in objects(rendered(*given)) if each["kind"] == "PrometheusRule"]
    urls = {rule["annotations"]["runbook_url"] for group in rules["groups"] for rule in group["rules"]}
    assert urls and all(each.startswith(f"{base}docs/guide/runbook.md#") for each in urls)


# --- bad values ---


@needs_helm
@for_each(
    "value, said",
    ("settings.FLEETLORE_PARTITONS=4", "at '/settings': additional properties 'FLEETLORE_PARTITONS' not allowed"),
    ("settings.FLEETLORE_MILVUS_TOKEN=abc", "additional properties 'FLEETLORE_MILVUS_TOKEN' not allowed"),
    ("settings.FLEETLORE_HOLDOUT_SHARE=2", "at '/settings/FLEETLORE_HOLDOUT_SHARE': maximum: got 2, want 1"),
    ("settings.FLEETLORE_PARTITIONS=many", "at '/settings/FLEETLORE_PARTITIONS': got string, want integer"),
    ("secrets.FLEETLORE_MILVUS_TOKEN=abc", "at '/secrets/FLEETLORE_MILVUS_TOKEN': got string, want object"),
    ("wroker.replicas=3", "additional properties 'wroker' not allowed"),
    ("worker.replicas=0", "at '/worker/replicas': minimum: got 0, want 1"),
    ("worker.replicas=5", "5 workers, but events has 4 partitions"),
    ("trainer.signingKey.name=", "at '/trainer/signingKey/name': minLength: got 0, want 1"),
)
def test_a_bad_value_is_refused_with_its_name(value: str, said: str) -> None:
    done = SCRIPT.render(HELM, f"--set={value}")
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize("number", [0, 2])
def test_the_values_of_the_guide_are_taken(number: int, tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guide" / "kubernetes.md").read_text()
    values = re.findall(r"^```yaml\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)[number]
    schema = json.loads((CHART / "values.schema.json").read_text())
    own = yaml.safe_load((CHART / "values.yaml").read_text())
    for name, given in yaml.safe_load(values).items():
        jsonschema_rs.validate(schema, {**own, name: {**own[name], **given}})
    if HELM is not None:
        (tmp_path / "fleet.yaml").write_text(values)
        assert objects(rendered(f"--values={tmp_path / 'fleet.yaml'}"))


def test_the_values_keep_their_own_schema_and_say_what_each_is_for() -> None:
    text = (CHART / "values.yaml").read_text()
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load(text)
    jsonschema_rs.validate(schema, values)
    assert {*values} == {*schema["properties"]} - {"global"}
    templates = "".join(each.read_text() for each in (CHART / "templates").iterdir())
    for name, of in values.items():
        for each in of if isinstance(of, dict) and name != "settings" else ():
            assert re.search(rf"(\.Values\.{name}|\.values|\${name})\.{each}\b", templates), (
                f"{name}.{each} has no effect"
            )
