"""Fetch the jars that a broker of Apache Kafka runs on, once, into a cache folder outside the tree."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

REPOSITORY = "https://repo.maven.apache.org/maven2"
# `group:artifact:version sha256` for each: `org.apache.kafka:kafka_2.13` with what it runs on, its tools, and a logger.
JARS = Path(__file__).with_name("jars.txt")
KAFKA = "org.apache.kafka"
# The release that tests run, and the one that brokers are upgraded from. Both run on the same libraries.
RELEASE, BEFORE = "4.1.1", "4.0.1"
TIMEOUT_SECONDS = 60.0


class KafkaMissing(Exception):
    """Apache Kafka cannot run here; says why."""


@cache
def java_command(release: str = RELEASE) -> tuple[str, ...]:
    """The command that runs a class of Kafka: `java`, its options, the class path.

    Raises:
        KafkaMissing: there is no Java, or the jars cannot be had.
    """
    if (java := shutil.which("java")) is None:
        raise KafkaMissing("java is not installed (Debian: apt install default-jre-headless)")
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fleetlore" / "kafka"
    folder.mkdir(parents=True, exist_ok=True)
    jars = [
        (coordinates, sha256)
        for coordinates, sha256 in (line.split() for line in JARS.read_text().splitlines())
        if not coordinates.startswith(f"{KAFKA}:") or coordinates.endswith(f":{release}")
    ]
    with ThreadPoolExecutor(8) as pool:
        files = list(pool.map(lambda jar: _fetched(*jar, folder), jars))
    # Small and soon started, instead of fast after a while: several brokers share a machine with what they are for.
    options = ("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
    logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"
    return (java, *options, *logging, "-cp", os.pathsep.join(map(str, files)))


def _fetched(coordinates: str, sha256: str, folder: Path) -> Path:
    group, artifact, version = coordinates.split(":")
    name = f"{artifact}-{version}.jar"
    if (file := folder / name).exists():
        return file
    url = f"{REPOSITORY}/{group.replace('.', '/')}/{artifact}/{version}/{name}"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
            content = answer.read()
    except (urllib.error.URLError, OSError) as error:
        raise KafkaMissing(f"{url} cannot be had: {error}") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise KafkaMissing(f"{url} is not the file that {JARS.name} states")
    # Several test processes may fetch at once, and none may see half a file.
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as partly:
        partly.write(content)
    os.replace(partly.name, file)
    return file
