"""Run `fleetlore adapters publish-llm`: publish a LoRA of the agents' own language model."""

from __future__ import annotations

import hashlib
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from fleetlore.cli.options import Asked, command, group
from fleetlore.cli.output import ask, print_json
from fleetlore.config import Settings
from fleetlore.errors import ConfigError

if TYPE_CHECKING:
    from fleetlore.wire.adapter_manifest import LanguageModelManifest

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    group(app, "adapters").command("publish-llm")(publish_llm)


@command
def publish_llm(
    asked: Asked,
    adapter: Annotated[Path, typer.Argument(metavar="DIR", help="LoRA as peft saves it.")],
    base: Annotated[Path, typer.Option("--base", metavar="DIR", help="The language model that it changes.")],
    base_name: Annotated[str, typer.Option("--base-name", help="Name under which that model is served.")],
    gate: Annotated[
        Path,
        typer.Option("--gate", metavar="FILE", help='Report of its gate: {"passed": true, "metrics": {...}}.'),
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
    sessions, agents = ((), 0) if dataset is None else _learned_from(dataset)
    settings = asked.settings.with_key(asked.data)
    from fleetlore.lora.adapter import base_of, pack, read_lora
    from fleetlore.wire.adapter_manifest import LanguageModelManifest

    model = base_of(base)
    lora = read_lora(adapter, model)
    manifest = LanguageModelManifest(
        version=hashlib.sha256(lora.weights).hexdigest(),
        ordinal=0,
        parent=None,
        tenant=asked.tenant,
        size_bytes=len(lora.weights),
        data=(),
        sessions=len(sessions),
        agents=agents,
        tools=(),
        metrics=metrics,
        created=time.time(),
        base=base_name,
        base_sha256=model.sha256,
        rank=lora.rank,
        alpha=lora.alpha,
        rank_stabilized=lora.rank_stabilized,
        targets=lora.targets,
        tensors=lora.tensors,
        gate_sha256=hashlib.sha256(gate.read_bytes()).hexdigest(),
        learned_from=pack(sessions) if sessions else "",
    )
    published = ask(_publish(settings, lora.weights, manifest, reason, canary))
    if asked.json:
        print_json({"tenant": asked.tenant, "version": published.version, "ordinal": published.ordinal})
    else:
        typer.echo(f"Version {published.ordinal} is published; its servers answer for the model {published.version}.")


async def _publish(
    settings: Settings, weights: bytes, manifest: LanguageModelManifest, reason: str, canary: float
) -> LanguageModelManifest:
    from msgspec.structs import replace

    from fleetlore.wire.adapter_manifest import LanguageModelManifest
    from sinks.adapter_publisher import AdapterPublisher

    async with AdapterPublisher.from_settings(LanguageModelManifest, settings) as publisher:
        known = await publisher.published(manifest.tenant)
        if known.revoked(manifest.version):
            raise ConfigError(f"version {manifest.version[:12]} was revoked, so no server would run it")
        ordinal = 1 + max((each.ordinal for each in known.versions.values()), default=0)
        parent = known.pointer.version if known.pointer else None
        manifest = replace(manifest, ordinal=ordinal, parent=parent)
        await publisher.publish(weights, manifest, reason, canary if parent else 0.0, known=known)
        return manifest


def read_gate(file: Path) -> dict[str, float]:
    """Return the figures of a gate's report that passed. The owner decides how it is made. Raises ConfigError."""
    try:
        report = orjson.loads(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{file} is no JSON: {error}") from None
    metrics = report.get("metrics") if isinstance(report, dict) else None
    if not isinstance(metrics, dict) or not metrics or not all(_is_figure(each) for each in metrics.values()):
        raise ConfigError(f'{file} has no figures: {{"passed": true, "metrics": {{"name": number}}}}')
    if report.get("passed") is not True:
        raise ConfigError(f"{file} does not say that it passed: nothing is published")
    return {str(name)[:64]: float(value) for name, value in metrics.items()}


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _learned_from(folder: Path) -> tuple[tuple[str, ...], int]:
    file = folder / "sessions.jsonl"
    try:
        rows = [orjson.loads(line) for line in file.read_bytes().splitlines()]
        return tuple(str(row["session"]) for row in rows), len({row["agent"] for row in rows})
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{file} is not what `fleetlore export` writes: {error!r}") from None
