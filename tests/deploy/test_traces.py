"""A relay gives spans by OpenTelemetry's own instrumentation, as the guide says."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from benchmarks.embedded_broker import EmbeddedBroker
from streams.embedded.broker import free_port

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "operate.md"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_each_request_to_a_relay_is_a_span(broker: EmbeddedBroker, tmp_path: Path) -> None:
    packages = next(line for line in GUIDE.read_text().splitlines() if "opentelemetry-distro" in line).split()[3:]
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", tmp_path, *packages]
    if subprocess.run(install).returncode:
        pytest.skip("the packages of OpenTelemetry cannot be fetched")
    address = f"127.0.0.1:{free_port()}"
    exporters = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
    command = [tmp_path / "bin" / "opentelemetry-instrument", sys.executable, "-m", "fleetlore.cli.main", "relay"]
    with subprocess.Popen(
        [sys.executable, *command, "--http", address, "--broker", broker.address],
        env=os.environ | exporters | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        stdout=subprocess.PIPE,
        text=True,
    ) as relay:
        assert relay.stdout is not None and address in relay.stdout.readline()
        urllib.request.urlopen(f"http://{address}/v1/openapi.json", timeout=120).close()
        relay.send_signal(signal.SIGINT)
        assert '"name": "GET /v1/openapi.json"' in relay.communicate(timeout=120)[0]
