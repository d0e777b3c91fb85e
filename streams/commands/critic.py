"""Run `fleetlore critic fit DIR --out FILE`: fit a critic on logged sessions, for workers (FLEETLORE_CRITIC=FILE)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetlore.cli.app import group
from fleetlore.cli.options import Json, Logs
from fleetlore.cli.output import print_json, print_table, write_file
from fleetlore.errors import ConfigError

if TYPE_CHECKING:
    from models.judge.critic import Critic


def register(app: typer.Typer) -> None:
    """Add the group (entry point `critic`)."""
    commands = group(app, "critic")
    commands.info.help = "Fit the critic, a model that judges sessions without a reward or feedback."
    # A group of one command: without this typer would make it the group itself.
    commands.callback()(_group)
    commands.command()(fit)


def _group() -> None:
    pass


def fit(
    folder: Logs,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write the critic to.")],
    seed: Annotated[int, typer.Option(help="Seed of the cross-validation split.")] = 0,
    as_json: Json = False,
) -> None:
    """Fit a critic on logged sessions and write it to a file. Workers use the file named by FLEETLORE_CRITIC.

    The table counts its verdicts on sessions of held-out agents and tasks. Needs the extra `backtest`; 22,000 sessions
    take minutes.
    """
    if not out.parent.is_dir():
        raise ConfigError(f"the folder {out.parent} does not exist")
    from fleetlore.transcripts.read import read_sessions
    from models.judge.critic_fit import fit
    from streams.offline.memory_pipeline import run_logs

    sessions = read_sessions(folder)
    typer.echo(f"reading {len(sessions):,} sessions", err=True)
    trajectories = asyncio.run(run_logs(sessions, seed=seed, learn=False)).trajectories
    ended = [each for each in trajectories if each.ending in ("success", "failure")]
    typer.echo(f"fitting on the {len(ended):,} with a known outcome", err=True)
    critic, _ = fit(ended, [each.ending == "failure" for each in ended], seed)
    write_file(out, critic.to_bytes())
    _report(critic, out, len(ended), as_json)


def _report(critic: Critic, out: Path, sessions: int, as_json: bool) -> None:
    if as_json:
        families = [record._asdict() for record in critic.records]
        print_json({"file": str(out), "version": critic.version, "sessions": sessions, "families": families})
        return
    typer.echo(f"{critic.version}, fitted on {sessions:,} sessions, is in {out}. Verdicts on held-out sessions:")
    names = ("FAILED: RIGHT", "FAILED: WRONG", "SUCCEEDED: WRONG", "SUCCEEDED: RIGHT", "ABSTAINED")
    columns = ("~TOOLS", *(f">{name}" for name in names))
    print_table(columns, [[str(value) for value in record] for record in critic.records])
