"""The chart gives the operators of Prometheus and Kafka the alerts, topics and access lists of the code.

The schemas of these operators are not at hand here; each object's fields are compared with what the operator is to do.
"""

from typing import Any

import pytest
import yaml

from fleetlore.config import Settings
from fleetlore.wire.topics import TOPICS, topic
from sinks.topics import new_topic
from streams.commands.topics import accesses
from tests.deploy.test_kubernetes import CHART, DEPLOY, HELM, SCRIPT, Object, needs_helm, objects, rendered
from tests.rows import for_each

TWO = (
    "--set=settings.FLEETLORE_TENANTS=shop\\,big_shop,settings.FLEETLORE_PARTITIONS=12",
    "--set=settings.FLEETLORE_REPLICATION=1,settings.FLEETLORE_GROUP=ours",
    "--set=strimzi.cluster=events,strimzi.namespace=kafka,strimzi.authentication=tls",
)


def of_kind(found: list[Object], kind: str) -> list[Object]:
    return [each for each in found if each["kind"] == kind]


@pytest.fixture(scope="module", params=["as it is", pytest.param("two tenants", marks=needs_helm)])
def case(request: pytest.FixtureRequest) -> tuple[list[Object], Settings]:
    """The objects, and the settings that they are for."""
    if request.param == "as it is":
        (config,) = of_kind(objects((DEPLOY / "kubernetes.yaml").read_text()), "ConfigMap")
        text = (DEPLOY / "kubernetes-operators.yaml").read_text()
        return objects(text), Settings.from_env(config["data"])
    settings = Settings(tenants=("shop", "big_shop"), partitions=12, replication=1, group="ours")
    return objects(rendered(*SCRIPT.operators(), *TWO)), settings


@needs_helm
def test_the_objects_are_what_the_chart_gives() -> None:
    assert (DEPLOY / "kubernetes-operators.yaml").read_text() == rendered(*SCRIPT.operators()), "run `make docs`"


@for_each("name", *SCRIPT.FILES_OF_CHART)
def test_the_chart_has_the_tables_of_the_code(name: str) -> None:
    assert (CHART / "files" / name).read_text() == SCRIPT.FILES_OF_CHART[name](), "run `make docs`"


def test_the_alerts_are_those_that_promtool_tests(case: tuple[list[Object], Settings]) -> None:
    (rule,) = of_kind(case[0], "PrometheusRule")
    assert rule["apiVersion"] == "monitoring.coreos.com/v1"
    assert rule["spec"] == yaml.safe_load((DEPLOY / "alerts.yml").read_text())


def test_a_topic_is_what_a_worker_would_make(case: tuple[list[Object], Settings]) -> None:
    found, settings = case
    made = {each["spec"].pop("topicName"): each for each in of_kind(found, "KafkaTopic")}
    assert {*made} == {topic(tenant, spec.name) for tenant in settings.tenants for spec in TOPICS}
    assert len({each["metadata"]["name"] for each in made.values()}) == len(made)
    for tenant in settings.tenants:
        for spec in TOPICS:
            name = topic(tenant, spec.name)
            wanted, each = new_topic(name, spec, settings), made[name]
            assert each["spec"] == {
                "partitions": wanted.num_partitions,
                "replicas": wanted.replication_factor,
                "config": wanted.topic_configs,
            }
            assert each["apiVersion"] == "kafka.strimzi.io/v1"
            assert each["metadata"]["name"] == name.replace("_", "-")
            # Uninstalling the chart would delete the topic itself.
            assert each["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_a_user_may_do_what_the_command_prints(case: tuple[list[Object], Settings]) -> None:
    found, settings = case
    needed: dict[str, set[tuple[str, str, str, str]]] = {}
    for each in accesses(settings.tenants, settings.group):
        pattern = "prefix" if each.prefixed else "literal"
        rights = {(each.kind, name, pattern, operation) for name in each.names for operation in each.operations}
        needed.setdefault(each.user.replace("_", "-"), set()).update(rights)
    made = {each["metadata"]["name"]: each["spec"]["authorization"] for each in of_kind(found, "KafkaUser")}
    assert {name: _allowed(each) for name, each in made.items()} == needed


def _allowed(authorization: dict[str, Any]) -> set[tuple[str, str, str, str]]:
    assert authorization["type"] == "simple"
    return {
        (each["resource"]["type"], each["resource"]["name"], each["resource"]["patternType"], operation)
        for each in authorization["acls"]
        for operation in each["operations"]
    }


@needs_helm
def test_the_objects_are_for_the_cluster_that_is_named() -> None:
    found = objects(rendered(*SCRIPT.operators(), *TWO))
    for each in [*of_kind(found, "KafkaTopic"), *of_kind(found, "KafkaUser")]:
        assert each["metadata"]["namespace"] == "kafka"
        assert each["metadata"]["labels"]["strimzi.io/cluster"] == "events"
    assert {each["spec"]["authentication"]["type"] for each in of_kind(found, "KafkaUser")} == {"tls"}


@needs_helm
@for_each("has, written", (("v1beta2",), "v1beta2"), (("v1beta2", "v1"), "v1"))
def test_an_older_strimzi_gets_the_version_that_it_knows(has: tuple[str, ...], written: str) -> None:
    known = [f"--api-versions=kafka.strimzi.io/{each}" for each in has]
    found = objects(rendered(*SCRIPT.operators(), *known))
    assert {each["apiVersion"] for each in of_kind(found, "KafkaTopic")} == {f"kafka.strimzi.io/{written}"}


@needs_helm
def test_tenants_that_kubernetes_cannot_tell_apart_are_refused() -> None:
    done = SCRIPT.render(HELM, *SCRIPT.operators(), "--set=settings.FLEETLORE_TENANTS=a_b\\,a-b")
    assert done.returncode != 0 and "two tenants differ" in done.stderr


def test_nothing_of_an_operator_is_there_unless_it_is_asked_for() -> None:
    kinds = {each["kind"] for each in objects((DEPLOY / "kubernetes.yaml").read_text())}
    assert not kinds & {"KafkaTopic", "KafkaUser", "PrometheusRule", "ServiceMonitor", "ScaledObject"}
