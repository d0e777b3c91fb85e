"""TLS, passwords, tokens and certificates, for every client, the workers' own and the command line."""

import asyncio
import logging
import traceback
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fleetlore.cli.app import build_app
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable, ConfigError
from fleetlore.kafka.emitter import Emitter
from fleetlore.kafka.read import read_to_end
from fleetlore.wire.topics import TOPICS, topic
from sinks.topics import ensure_topics
from streams.commands.topics import register
from streams.embedded.broker import free_port
from streams.offline.operator_word import wait_drained
from tests.cluster.secured import ROOT, WAYS, Secured, password_of
from tests.streams.broker_pipeline import StartWorker, known
from tests.streams.log_pipeline import RIGHT, WRONG, Story


async def emit(settings: Settings, tenant: str) -> None:
    emitter = Emitter(settings.cluster, tenant, principal_key=settings.principal_key)
    await emitter.start()
    for event in Story(tenant).session("good", WRONG, RIGHT):
        assert emitter.emit(event)
    assert await emitter.flush(120)
    await emitter.close()


@pytest.mark.parametrize("way", WAYS)
async def test_topics_are_made_written_and_read(secured: Secured, tenant: str, way: str) -> None:
    settings = secured.by(way, tenant)
    assert len(await ensure_topics(settings)) == len(TOPICS)
    await emit(settings, tenant)
    assert len(await read_to_end(settings.cluster, [topic(tenant, "events")], 120)) == 1


# Faust knows three kinds of credentials.
@pytest.mark.parametrize("way", ["SCRAM-SHA-512", "OAUTHBEARER", "mtls"])
async def test_a_worker_serves(secured: Secured, milvus: str, tenant: str, way: str, start_worker: StartWorker) -> None:
    settings = secured.by(way, tenant).with_(milvus=milvus, group=tenant, metrics_port=free_port())
    worker = await asyncio.to_thread(start_worker, settings)
    await emit(settings, tenant)
    await wait_drained(settings, tenant, 60.0)
    worker.terminate()
    assert await asyncio.to_thread(worker.wait, 120) == 0
    assert (await known(milvus, tenant)).judgments == [("good", "success", 4)]


def test_the_command_line_takes_a_password_from_a_file(
    secured: Secured, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_text(f"{password_of(ROOT)}\n")
    for name, value in secured.by("SCRAM-SHA-256", tenant).to_env().items():
        if value and name.startswith(("FLEETLORE_BROKER", "FLEETLORE_KAFKA", "FLEETLORE_REPLICATION")):
            monkeypatch.setenv(name, value)
    monkeypatch.delenv("FLEETLORE_KAFKA_SASL_PASSWORD")
    monkeypatch.setenv("FLEETLORE_KAFKA_SASL_PASSWORD_FILE", str(file))
    app = build_app()
    register(app)
    done = CliRunner().invoke(app, ["topics", "apply", "--tenant", tenant])
    assert done.exit_code == 0, done.output


async def test_a_wrong_password_is_said_and_not_shown(
    secured: Secured, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = secured.scram(ROOT, tenant, kafka_sasl_password="not-the-one-4711")
    with caplog.at_level(logging.DEBUG), pytest.raises(BrokerUnavailable, match=r"(?i)authentication") as refused:
        await ensure_topics(settings)
    said = "".join(traceback.format_exception(refused.value)) + caplog.text + repr(settings) + repr(settings.cluster)
    assert "4711" not in said
    emitter = Emitter(settings.cluster, tenant)
    await emitter.start()
    emitter.emit(Story(tenant).session("good", RIGHT)[0])
    assert not await emitter.flush(1.0)
    await emitter.close()
    assert "uthentication" in caplog.text and "4711" not in caplog.text


async def test_a_broker_that_an_unknown_authority_signed_is_refused(secured: Secured, tenant: str) -> None:
    unknown = secured.scram(ROOT, tenant, kafka_ssl_ca_location="")
    with pytest.raises(BrokerUnavailable, match="certificate verify failed"):
        await ensure_topics(unknown)


async def test_a_broker_whose_certificate_is_for_another_name_is_refused_unless_told(
    secured: Secured, tenant: str
) -> None:
    by_name = secured.cluster.address.replace("127.0.0.1", "localhost")
    elsewhere = secured.scram(ROOT, tenant, broker=by_name)
    with pytest.raises(BrokerUnavailable, match="certificate is not valid for 'localhost'"):
        await ensure_topics(elsewhere)
    await ensure_topics(elsewhere.with_(kafka_ssl_endpoint_identification="none"))


async def test_who_has_no_certificate_does_not_get_in(secured: Secured, tenant: str) -> None:
    settings = secured.by("mtls", tenant)
    with pytest.raises(BrokerUnavailable):
        await ensure_topics(settings.with_(kafka_ssl_certificate_location=""))


def test_a_key_with_a_password_that_is_not_given_is_refused(secured: Secured, tenant: str) -> None:
    with pytest.raises(ConfigError, match="SSL_CERTIFICATE_LOCATION"):
        secured.by("mtls", tenant).with_(
            kafka_ssl_certificate_location=str(secured.files.authority)
        ).cluster.ssl_context()
