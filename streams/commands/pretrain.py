"""Run `fleetlore pretrain DIR --out FILE`: train a base on logged sessions (FLEETLORE_BASE=FILE)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from fleetlore.cli.options import Json, Logs
from fleetlore.cli.output import print_json, write_file
from fleetlore.errors import ConfigError

PASSES = 5


def register(app: typer.Typer) -> None:
    """Add `fleetlore pretrain` (entry point)."""
    app.command()(pretrain)


def pretrain(
    folder: Logs,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="File to write the base to; the model card goes beside it.")
    ],
    seed: Annotated[int, typer.Option(help="Seed of the batches.")] = 0,
    passes: Annotated[int, typer.Option(min=1, max=100, help="Passes over the sessions.")] = PASSES,
    as_json: Json = False,
) -> None:
    """Train the frozen base network on logged sessions.

    A model card is written beside it. Trainer and agents use the file named by FLEETLORE_BASE. Set it before the first
    version of a tenant: adapters of another base are refused. The same logs, passes and seed give the same file.
    """
    card = out.with_suffix(".md")
    if not out.parent.is_dir() or out.is_dir() or card == out:
        raise ConfigError(f"--out {out}: give a file (not *.md) in an existing folder")
    import torch

    from fleetlore.retrieval.encoder import shared_encoder
    from fleetlore.risk.network import load_base
    from fleetlore.transcripts.read import read_sessions
    from models.adapter.finetune_base import own_base, own_card
    from streams.offline.memory_pipeline import run_logs

    torch.set_num_threads(1)  # two threads add up in another order than one, and another last bit is another hash
    sessions = read_sessions(folder)
    typer.echo(f"reading {len(sessions):,} sessions", err=True)
    trajectories = asyncio.run(run_logs(sessions, seed=seed, learn=False)).trajectories
    typer.echo(f"training, {passes} passes", err=True)
    shipped, encoder = load_base(), shared_encoder()
    made = own_base(trajectories, encoder, shipped, passes=passes, seed=seed)
    write_file(card, own_card(made, shipped, encoder).encode())
    write_file(out, made.data)
    if as_json:
        print_json({"file": str(out), "card": str(card), **made.to_dict()})
        return
    typer.echo(
        f"{made.sha256[:12]} ({made.size_bytes:,} bytes), learned from {made.sessions:,} sessions, is in {out}. On "
        f"{made.held_out_sessions:,} held-out sessions: AUROC {made.auroc}, of the base that ships "
        f"{made.shipped_auroc}."
    )
