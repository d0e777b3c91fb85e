"""Run `fleetlore adapters publish-llm`."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer

from fleetlore.cli.shared import Asked, ask, command, group, print_result
from fleetlore.errors import ConfigError

__all__ = ["register"]

_Read = TypeVar("_Read")


class _Report(msgspec.Struct):
    passed: bool
    metrics: Annotated[dict[str, float], msgspec.Meta(min_length=1)]


class _Learned(msgspec.Struct):
    session: str
    agent: str


def register(app: typer.Typer) -> None:
    group(app, "adapters").command("publish-llm")(publish_llm)


@command
def publish_llm(
    asked: Asked,
    adapter: Annotated[Path, typer.Argument(metavar="DIR", help="LoRA as peft saves it.")],
    base: Annotated[Path, typer.Option("--base", metavar="DIR", help="The language model that it changes.")],
    base_name: Annotated[str, typer.Option("--base-name", help="Name under which that model is served.")],
    gate: Annotated[
        Path, typer.Option("--gate", metavar="FILE", help='Report of its gate: {"passed": true, "metrics": {...}}.')
    ],
    dataset: Annotated[
        Path | None,
        typer.Option("--dataset", metavar="DIR", help="Its training data (`fleetlore export`), for erasures."),
    ] = None,
    canary: Annotated[
        float,
        typer.Option("--canary", min=0.0, max=0.99, help="Share of the servers that try it first; 0: all at once."),
    ] = 0.0,
    reason: Annotated[str, typer.Option(help="Reason; it is published with the decision.")] = "published",
) -> None:
    """Publish a LoRA over your language model.

    The command checks and signs it, and the model's servers follow it. `rollback`, `pin` and `revoke` then apply to its
    versions. End a canary with `rollback VERSION`.
    """
    metrics = read_gate(gate)
    learned: list[_Learned] = []
    if dataset is not None:
        decode = msgspec.json.Decoder(_Learned).decode_lines
        learned = _read(dataset / "sessions.jsonl", decode, "what `fleetlore export` writes")
    settings = asked.settings.with_key(asked.data)
    from fleetlore.lora.adapter import base_of, pack, read_lora
    from fleetlore.wire.adapter_manifest import LanguageModelManifest
    from sinks.adapter_publisher import AdapterPublisher

    lora = read_lora(adapter, base_of(base))
    manifest = LanguageModelManifest(
        version=hashlib.sha256(lora.weights).hexdigest(),
        ordinal=0,  # this and the parent are known when it is published
        parent=None,
        tenant=asked.tenant,
        size_bytes=len(lora.weights),
        data=(),
        sessions=len(learned),
        agents=len({each.agent for each in learned}),
        tools=(),
        metrics=metrics,
        created=time.time(),
        base=base_name,
        gate_sha256=hashlib.sha256(gate.read_bytes()).hexdigest(),
        learned_from=pack(each.session for each in learned),
        **lora.stated,
    )

    async def publish() -> LanguageModelManifest:
        async with AdapterPublisher.from_settings(LanguageModelManifest, settings) as publisher:
            known = await publisher.published(asked.tenant)
            if known.is_revoked(manifest.version):
                raise ConfigError(f"version {manifest.version[:12]} was revoked, so no server would run it")
            stated = known.as_next(manifest)
            await publisher.publish(lora.weights, stated, reason, canary if stated.parent else 0.0, known=known)
            return stated

    published = ask(publish())
    document = {"tenant": asked.tenant, "version": published.version, "ordinal": published.ordinal}
    text = f"Version {published.ordinal} is published; its servers answer for the model {published.version}."
    print_result(asked.json, document, text)


def read_gate(file: Path) -> dict[str, float]:
    """Return the figures of a gate's report that passed. The owner decides how it is made. Raises ConfigError."""
    report = _read(file, msgspec.json.Decoder(_Report).decode, '{"passed": true, "metrics": {"name": number}}')
    if not report.passed:
        raise ConfigError(f"{file} does not say that it passed: nothing is published")
    return {name[:64]: value for name, value in report.metrics.items()}


def _read(file: Path, decode: Callable[[bytes], _Read], form: str) -> _Read:
    try:
        return decode(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file} is not {form}: {error}") from None
