import asyncio
import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from fleetlore.errors import ConfigError
from fleetlore.testing import FakeClock
from sinks.health_endpoint import Endpoint, Readiness
from sinks.metrics import CATALOGUE, Metrics


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def endpoint(clock: FakeClock) -> Iterator[Endpoint]:
    metrics = Metrics("worker")
    metrics.dead_letters.labels("not_json").inc(2)
    with metrics.serve(0, health=Readiness("broker", "milvus", clock=clock, stall_seconds=30)) as endpoint:
        yield endpoint


def get(endpoint: Endpoint, path: str, accept: str = "") -> tuple[int, str, str]:
    connection = HTTPConnection(endpoint.host, endpoint.port, timeout=120)
    try:
        connection.request("GET", path, headers={"Accept": accept})
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_metrics_are_served_in_both_formats_with_their_help(endpoint: Endpoint, accept: str) -> None:
    status, content_type, body = get(endpoint, "/metrics", accept)
    assert status == 200
    assert ("openmetrics" in content_type) == bool(accept)
    assert 'fleetlore_dead_letters_total{reason="not_json"} 2.0' in body
    assert "_created" not in body
    assert body.endswith("# EOF\n") == bool(accept)
    helps = set(re.findall(r"^# HELP (\S+) (.*)$", body, re.MULTILINE))
    assert helps >= {(spec.name.removesuffix("_total") if accept else spec.name, spec.help) for spec in CATALOGUE}


def test_ready_when_every_part_is(endpoint: Endpoint) -> None:
    assert get(endpoint, "/readyz")[0] == 503
    endpoint.health.ready("broker")
    status, _, body = get(endpoint, "/readyz")
    assert (status, body) == (503, "milvus: not started\n")
    endpoint.health.ready("milvus")
    assert get(endpoint, "/readyz")[::2] == (200, "ok\n")
    endpoint.health.unready("broker", "draining")
    assert get(endpoint, "/readyz")[::2] == (503, "broker: draining\n")


async def test_a_role_is_not_ready_while_a_batch_takes_long(
    endpoint: Endpoint, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    for part in ("broker", "milvus"):
        endpoint.health.ready(part)
    end = asyncio.Event()
    batch: asyncio.Task[None] = asyncio.create_task(_until(end))
    watch = asyncio.create_task(endpoint.health.watch("patterns", batch, slow_seconds=0))
    while endpoint.health.waiting() is None:
        await asyncio.sleep(0)
    body = "patterns: a batch has been under way for more than 0 s\n"
    assert get(endpoint, "/readyz")[::2] == (503, body)
    clock.advance(13.25)
    end.set()
    await watch
    assert get(endpoint, "/readyz")[::2] == (200, "ok\n")
    assert caplog.messages == ["patterns: a batch took 13.2 s, and hints waited for it"]


async def test_a_batch_that_ends_in_time_is_not_reported(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    for part in ("broker", "milvus"):
        endpoint.health.ready(part)
    await endpoint.health.watch("patterns", asyncio.create_task(asyncio.sleep(0)))
    assert (endpoint.health.waiting(), caplog.messages) == (None, [])


async def _until(event: asyncio.Event) -> None:
    await event.wait()


def test_a_silent_event_loop_is_dead(endpoint: Endpoint, clock: FakeClock) -> None:
    assert get(endpoint, "/livez")[0] == 200, "before the first beat the role is starting"
    endpoint.health.beat()
    clock.advance(30)
    assert get(endpoint, "/livez")[0] == 200
    clock.advance(1)
    status, _, body = get(endpoint, "/livez")
    assert status == 503
    assert "silent for 31 s" in body
    assert get(endpoint, "/readyz")[0] == 503
    endpoint.health.beat()
    assert get(endpoint, "/livez")[0] == 200


async def test_a_loop_that_beats_is_alive_while_its_role_waits(clock: FakeClock) -> None:
    health = Readiness(clock=clock, stall_seconds=30, beat_seconds=0)
    task = asyncio.create_task(health.keep_beating())
    for _ in range(3):
        await asyncio.sleep(0)
        clock.advance(31)
    assert health.dead() is not None
    await asyncio.sleep(0)
    assert health.dead() is None
    task.cancel()


def test_only_a_fatal_error_and_no_outage_elsewhere_is_dead(endpoint: Endpoint) -> None:
    endpoint.health.unready("milvus", "no answer")
    assert get(endpoint, "/livez")[0] == 200
    endpoint.health.fail("store gone")
    assert get(endpoint, "/livez")[::2] == (503, "store gone\n")


def test_the_version_has_a_page_and_an_unknown_one_says_what_there_is(endpoint: Endpoint) -> None:
    status, content_type, body = get(endpoint, "/version")
    assert (status, content_type, json.loads(body)["role"]) == (200, "application/json", "worker")
    status, _, body = get(endpoint, "/")
    assert status == 404 and "/metrics" in body


def test_a_used_port_is_a_config_error_until_it_is_closed() -> None:
    first = Metrics("worker").serve(0)
    with pytest.raises(ConfigError, match=str(first.port)):
        Metrics("trainer").serve(first.port)
    first.close()
    with Metrics("worker").serve(first.port) as second:
        assert second.port == first.port
