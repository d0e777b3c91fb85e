"""Run Apache Kafka on loopback: one broker or several in KRaft mode, that a test may kill, freeze and restart."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from fleetlore.config import Settings
from streams.embedded.broker import CLUSTER_ID, RELEASE, free_port, java_command

# The release that brokers are upgraded from.
BEFORE = "4.0.1"
START_SECONDS = 240.0
STOP_SECONDS = 120.0
LOG_LINES = 15
# How tests and brokers reach a broker whatever the clients' listeners ask for.
INSIDE = "INSIDE"
CLIENT = "CLIENT"


def signal_child(supervisor: subprocess.Popen[bytes], number: signal.Signals) -> None:
    for child in Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text().split():
        os.kill(int(child), number)


class KafkaBroker:
    """One node, broker and controller in one, on free ports from `start()` to `stop()`.

    Attributes:
        address: `host:port` of the first listener for clients, the same after a restart.
        release: of Kafka; another one counts from the next start on.
    """

    def __init__(
        self, folder: Path, node: int, ports: Mapping[str, int], properties: Mapping[str, str], release: str = RELEASE
    ) -> None:
        self.node = node
        self.release = release
        self.ports = ports
        self.address = f"127.0.0.1:{ports[CLIENT]}"
        self._file = folder / "server.properties"
        self._log_file = folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    def format(self, *options: str) -> None:
        """Make its storage with Kafka's own tool."""
        tool = [*java_command(self.release), "kafka.tools.StorageTool", "format"]
        command = [*tool, "-t", CLUSTER_ID, "-c", str(self._file)]
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=START_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr

    def launch(self) -> None:
        """Start and do not wait."""
        command = [*java_command(self.release), "kafka.Kafka", str(self._file)]
        with self._log_file.open("ab") as output:
            # The supervisor ends it with the test run, however that ends.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "streams.embedded.supervisor", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def start(self) -> None:
        """Start, with what it held before, and wait until it serves clients."""
        self.launch()
        self.await_brokers(1)

    def await_brokers(self, count: int, seconds: float = START_SECONDS, beside: Sequence[KafkaBroker] = ()) -> None:
        """Wait until it answers and knows of so many brokers, itself among them. Those `beside` it must run."""
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.ports[INSIDE]}", "log_level": 0})
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for each in (self, *beside):
                assert each.running, f"broker {each.node} ended: {each.last_words()}"
            try:
                known = admin.list_topics(timeout=1).brokers
            except KafkaException:
                time.sleep(0.1)
                continue
            if len(known) >= count and self.node in known:
                return
            time.sleep(0.05)
        raise AssertionError(f"broker {self.node} does not serve: {self.last_words()}")

    def stop(self) -> None:
        """Send SIGTERM: it hands its leaderships over first, where there is anybody to take them."""
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._gone()

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._gone()

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open and nothing answers, as with a broker that hangs."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after `pause`."""
        self._signal(signal.SIGCONT)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def last_words(self) -> str:
        """The end of its log."""
        return "\n".join(self._log_file.read_text(errors="replace").splitlines()[-LOG_LINES:])

    def _signal(self, number: signal.Signals) -> None:
        # The supervisor goes on: it must see the end of the test run also while the broker is frozen.
        if self._process is not None:
            signal_child(self._process, number)

    def _gone(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None


class KafkaCluster:
    """Brokers of one cluster, from `start()` (or `with`) to `stop()`, which removes their files.

    Args:
        properties: settings of each broker, after Kafka's own names.
        listeners: security protocol of each listener for clients, by its name; the first is called `CLIENT`.
        advertised: of a single broker, the port that clients of a listener are sent to: that of a proxy before it.
        format_options: further arguments of Kafka's storage tool, such as `--add-scram`.

    Attributes:
        inside: bootstrap servers without TLS or password, for tests that look in; a super user where there are ACLs.
    """

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        advertised: Mapping[str, int] | None = None,
        format_options: tuple[str, ...] = (),
        release: str = RELEASE,
    ) -> None:
        self._folder = folder
        self._advertised = advertised or {}
        self._format_options = format_options
        protocols = {INSIDE: "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **(listeners or {CLIENT: "PLAINTEXT"})}
        drawn: set[int] = set()  # ports that are free may be drawn twice
        while len(drawn) < brokers * len(protocols):
            drawn.add(free_port())
        left = iter(drawn)
        ports = {node: {name: next(left) for name in protocols} for node in range(1, brokers + 1)}
        self.brokers = [
            KafkaBroker(
                folder / str(node),
                node,
                ports[node],
                self._properties(node, ports, protocols) | dict(properties or {}),
                release,
            )
            for node in ports
        ]
        self.address = self.address_of(CLIENT)
        self.inside = self.address_of(INSIDE)

    def settings(self, milvus: str, tenant: str, **changes: Any) -> Settings:
        """Settings of the only worker of a tenant; each topic has one partition unless `changes` say more."""
        named: dict[str, Any] = {"broker": self.address, "milvus": milvus, "group": tenant, "tenants": (tenant,)}
        numbers = {"partitions": 1, "replication": 3, "session_timeout_seconds": 6.0, "metrics_port": free_port()}
        return Settings(**{**named, **numbers, **changes})

    def address_of(self, listener: str) -> str:
        """Bootstrap servers of a listener."""
        return ",".join(f"127.0.0.1:{broker.ports[listener]}" for broker in self.brokers)

    def start(self) -> None:
        """Format, start all brokers and wait until each knows the others."""
        for broker in self.brokers:
            broker.format(*self._format_options)
            broker.launch()
        for broker in self.brokers:
            broker.await_brokers(len(self.brokers), beside=self.brokers)

    def configure(self, *options: str) -> None:
        """Run Kafka's own tool for configurations, `kafka-configs`."""
        self._run("kafka.admin.ConfigCommand", *options)

    def raise_features(self, release: str) -> None:
        """Have the cluster use what is new in a release such as "4.1" that all brokers run (`kafka-features`)."""
        self._run("org.apache.kafka.tools.FeatureCommand", "upgrade", "--release-version", release)

    def _run(self, tool: str, *options: str) -> None:
        command = [*java_command(), tool, "--bootstrap-server", self.inside, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr

    def stop(self) -> None:
        """Kill all and remove what they wrote."""
        for broker in self.brokers:
            broker.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> KafkaCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _properties(
        self, node: int, ports: Mapping[int, Mapping[str, int]], protocols: Mapping[str, str]
    ) -> dict[str, str]:
        count = len(ports)
        told = {name: self._advertised.get(name, ports[node][name]) for name in protocols if name != "CONTROLLER"}
        return {
            "advertised.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in told.items()),
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{ports[n]['CONTROLLER']}" for n in ports),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": INSIDE,
            "listeners": ",".join(f"{name}://127.0.0.1:{ports[node][name]}" for name in protocols),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "log.dirs": str(self._folder / str(node) / "data"),
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            "offsets.topic.replication.factor": str(count),
            # Fewer than Kafka's 50: each is files and memory, and no test has many groups.
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": str(count),
            "transaction.state.log.min.isr": str(max(1, count - 1)),
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": str(count),
            "log.cleaner.backoff.ms": "1000",
            "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),
        }
